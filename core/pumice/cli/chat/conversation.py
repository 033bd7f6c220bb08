"""A conversation: its messages, how they are answered, and the file they are kept in."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pumice.chat.messages import read_messages
from pumice.errors import PumiceError
from pumice.suggest import unknown_name

if TYPE_CHECKING:
    from pumice.chat import Message
    from pumice.chat_stream import ChatStream
    from pumice.model import Model


class Conversation:
    """``messages`` as chat completions have them; ``options`` are those of ``Model.chat``."""

    def __init__(self, model: Model, options: dict[str, Any], system: str | None = None) -> None:
        self.model = model
        self.options = options
        self.messages: list[dict[str, Any]] = []
        self.system = system

    @property
    def system(self) -> str | None:
        """The text of the system message, if there is one."""
        return self.messages[0]["content"] if self.messages and self.messages[0]["role"] == "system" else None

    @system.setter
    def system(self, text: str | None) -> None:
        rest = self.messages if self.system is None else self.messages[1:]
        self.messages = [*([{"role": "system", "content": text}] if text else []), *rest]

    @property
    def defaults(self) -> dict[str, Any]:
        """Options that are often set, with what they are if nobody does."""
        return {**self.model.sampling, "max_tokens": None, "reasoning": None, "chat_template": None}

    def set(self, name: str, value: Any) -> None:
        """Set an option of the answers to come. Raises PumiceError for an unknown one, or a value that is wrong."""
        self._check(name)
        options = {**self.options, name: value}
        with self.model.chat_stream([{"role": "user", "content": "?"}], **{**options, "max_tokens": 1}) as stream:
            next(iter(stream), None)
        self.options = options

    def unset(self, name: str) -> None:
        """Leave an option at its default. Raises PumiceError for an unknown one."""
        self._check(name)
        self.options = {key: kept for key, kept in self.options.items() if key != name}

    def _check(self, name: str) -> None:
        from pumice.chat import OPTIONS as OF_CHATS
        from pumice.frontend.generating import OPTIONS
        from pumice.grammar import FORMS

        known = OF_CHATS | OPTIONS | FORMS | self.model.sampling.keys()
        if name not in known:
            raise PumiceError(unknown_name("option", name, known))

    def reset(self) -> None:
        """Forget all but the system message."""
        self.messages = [message for message in self.messages[:1] if message["role"] == "system"]

    def say(self, text: str) -> None:
        self.messages.append({"role": "user", "content": text})

    def unsay(self) -> str | None:
        """Take back the last message of the user, and what came after it; its text, if there is one."""
        for i in range(len(self.messages) - 1, -1, -1):
            if self.messages[i]["role"] == "user":
                text: str = self.messages[i]["content"]
                del self.messages[i:]
                return text
        return None

    def answer(self) -> ChatStream:
        """Answer the last message. Raises PumiceError."""
        return self.model.chat_stream(self.messages, **self.options)

    def keep(self, message: Message) -> None:
        self.messages.append(message.to_dict())

    def save(self, path: Path) -> None:
        """Write the messages as JSON, all of them or nothing. Raises PumiceError."""
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            temporary.write_text(json.dumps({"messages": self.messages}, ensure_ascii=False, indent=2) + "\n")
            os.replace(temporary, path)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise PumiceError(f"{path}: cannot be written: {error.strerror}") from None

    def load(self, path: Path) -> None:
        """Take the messages of a file that ``save`` wrote, or of a list of messages. Raises PumiceError."""
        try:
            value = json.loads(path.read_text())
        except OSError as error:
            raise PumiceError(f"{path}: cannot be read: {error.strerror}") from None
        except ValueError as error:
            raise PumiceError(f"{path}: not JSON: {error}") from None
        messages = value.get("messages") if isinstance(value, dict) else value
        if not isinstance(messages, list):
            raise PumiceError(f"{path}: no list of messages")
        read_messages(messages)
        self.messages = messages
