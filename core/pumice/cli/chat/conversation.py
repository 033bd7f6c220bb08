"""A conversation: its messages, options and file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pumice.cli.chat.files import read_conversation, write_conversation
from pumice.errors import PumiceError
from pumice.wording import unknown_name

if TYPE_CHECKING:
    from pumice.chat import Message
    from pumice.model import Model
    from pumice.streaming.chat import ChatStream


class Conversation:
    """Messages in the form of chat completions, and options of ``Model.chat`` for the answers."""

    def __init__(self, model: Model, options: dict[str, Any], system: str | None = None) -> None:
        self.model = model
        self.options = options
        self.messages: list[dict[str, Any]] = []
        self.system = system

    @property
    def system(self) -> str | None:
        """Text of the system message; None without one."""
        return self.messages[0]["content"] if self.messages and self.messages[0]["role"] == "system" else None

    @system.setter
    def system(self, text: str | None) -> None:
        rest = self.messages if self.system is None else self.messages[1:]
        self.messages = [*([{"role": "system", "content": text}] if text else []), *rest]

    @property
    def defaults(self) -> dict[str, Any]:
        """Frequently set options with their defaults."""
        return {**self.model.sampling, "max_tokens": None, "reasoning": None, "chat_template": None}

    def set(self, name: str, value: Any) -> None:
        """Set an option of future answers. Raises PumiceError for an unknown option or an invalid value."""
        self._check(name)
        options = {**self.options, name: value}
        with self.model.chat_stream([{"role": "user", "content": "?"}], **{**options, "max_tokens": 1}) as stream:
            next(iter(stream), None)
        self.options = options

    def unset(self, name: str) -> None:
        """Reset an option to its default. Raises PumiceError for an unknown one."""
        self._check(name)
        self.options = {key: kept for key, kept in self.options.items() if key != name}

    def _check(self, name: str) -> None:
        from pumice.options import CHAT

        names = {*CHAT, *self.model.sampling}
        if name not in names:
            raise PumiceError(unknown_name("option", name, names))

    def reset(self) -> None:
        """Remove all messages except the system message."""
        self.messages = [message for message in self.messages[:1] if message["role"] == "system"]

    def say(self, text: str) -> None:
        self.messages.append({"role": "user", "content": text})

    def unsay(self) -> str | None:
        """Remove the user's last message and all later ones, and return its text; None without one."""
        for i in range(len(self.messages) - 1, -1, -1):
            if self.messages[i]["role"] == "user":
                text: str = self.messages[i]["content"]
                del self.messages[i:]
                return text
        return None

    def answer(self) -> ChatStream:
        """Return a stream of the answer to the last message. Raises PumiceError."""
        return self.model.chat_stream(self.messages, **self.options)

    def keep(self, message: Message) -> None:
        self.messages.append(message.to_dict())

    def save(self, path: Path) -> None:
        """Write the messages to a JSON file atomically. Raises PumiceError."""
        write_conversation(path, self.messages)

    def load(self, path: Path) -> None:
        """Replace the messages by those of a file that ``save`` wrote, or of a JSON list. Raises PumiceError."""
        self.messages = read_conversation(path)
