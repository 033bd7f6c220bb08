"""A conversation: its messages, options and file."""

from __future__ import annotations

from collections.abc import Container, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pumice.chat.media import KINDS, kind_of
from pumice.cli.chat.files import (
    media_mark,
    read_conversation,
    read_image,
    read_sound,
    read_video,
    write_conversation,
)
from pumice.cli.options import ASSUMED_TEMPLATE
from pumice.errors import PumiceError, RequestError
from pumice.hub.catalogue import ChatDefaults
from pumice.options import CHAT
from pumice.wording import did_you_mean

if TYPE_CHECKING:
    from pumice.architecture import MediaKind
    from pumice.chat import Message, Tool
    from pumice.chat.mixed import Media
    from pumice.frontend.tool_loop import ToolLoop
    from pumice.model import Model
    from pumice.streaming.chat import ChatStream, PreparedChat


MAX_TOOL_TURNS = 25  # answers with calls to one message


class Conversation:
    """Messages in the form of chat completions, and options of ``Model.chat`` for the answers.

    Attributes:
        markdown: Answers are shown as formatted Markdown where standard output is a terminal.
    """

    def __init__(
        self,
        model: Model,
        options: dict[str, Any],
        system: str | None = None,
        messages: Sequence[dict[str, Any]] = (),
    ) -> None:
        self.model = model
        self.options = options
        self._began = dict(options)
        self.markdown = True
        self.tools: list[Tool] = []
        self._offered: Sequence[Tool] = ()  # also those that the chat template does not take
        self.media: list[Media] = []  # images and sounds that wait for the next message
        self._defaults = ChatDefaults()
        self.messages: list[dict[str, Any]] = list(messages)
        if system or not messages:
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
    def texts(self) -> list[dict[str, Any]]:
        """The messages as they are kept and saved: ``[image]``, ``[audio]`` or ``[video]`` stands for each medium."""
        return [_without_media(message) for message in self.messages]

    @property
    def defaults(self) -> dict[str, Any]:
        """Frequently set options with their defaults, and those that the chat began with."""
        usual = {**self.model.sampling, "max_tokens": None, "reasoning": None, "chat_template": None}
        return {**usual, **self._first_options}

    @property
    def _first_options(self) -> dict[str, Any]:
        return {**_default_options(self._defaults), **self._began}

    def set(self, name: str, value: Any) -> None:
        """Set an option of future answers. Raises PumiceError for an unknown option or an invalid value."""
        self._check(name)
        if name == "logit_bias" and isinstance(value, dict):  # keys of JSON are strings
            value = {int(key) if _is_number(key) else key: bias for key, bias in value.items()}
        options = {**self.options, name: value}
        with self.model.chat_stream([{"role": "user", "content": "?"}], **{**options, "max_tokens": 1}) as stream:
            next(iter(stream), None)
        self.options = options

    def unset(self, name: str) -> None:
        """Reset an option to what the chat began with, or its default. Raises PumiceError for an unknown one."""
        self._check(name)
        first = {key: value for key, value in self._first_options.items() if key == name}
        self.options = {key: kept for key, kept in self.options.items() if key != name} | first

    def _check(self, name: str) -> None:
        names = {*CHAT, *self.model.sampling}
        if name not in names:
            hint = did_you_mean(name, names) or "; /set lists the usual ones"
            raise PumiceError(f"unknown option {name!r:.60}{hint}")

    def reset(self) -> None:
        """Remove all messages except the system message."""
        self.messages = [message for message in self.messages[:1] if message["role"] == "system"]

    def say(self, text: str) -> None:
        """Add a message of the user, with the images, sounds and videos that wait for one."""
        self.messages.append({"role": "user", "content": [*self.media, text] if self.media else text})
        self.media = []

    def show(self, path: Path) -> None:
        """Let an image wait for the next message. Raises PumiceError."""
        self.media = [*self.media, read_image(path)]

    def play(self, path: Path) -> None:
        """Let a sound wait for the next message. Raises PumiceError."""
        self.media = [*self.media, read_sound(path)]

    def watch(self, path: Path) -> None:
        """Let a video wait for the next message. Raises PumiceError."""
        self.media = [*self.media, read_video(path)]

    def unsay(self) -> str | None:
        """Remove the user's last message and all later ones, and return its text; None without one.

        Its images, sounds and videos wait for the next message.
        """
        for i in range(len(self.messages) - 1, -1, -1):
            if self.messages[i]["role"] == "user":
                content: str | list[Any] = self.messages[i]["content"]
                del self.messages[i:]
                if isinstance(content, str):
                    return content
                *self.media, text = content
                return str(text)
        return None

    def take_tools(self, tools: Sequence[Tool]) -> list[str]:
        """Give the model tools that run. Returns a line for each tool that is left out.

        Raises:
            PumiceError: The chat template takes no tools.
        """
        self._offered = tools
        self.tools, problems = list(tools), []
        while self.tools:
            try:
                probe = self._prepare_probe()
            except RequestError as error:
                refused = [tool for tool in self.tools if f"parameters of {tool.name!r:.80}" in str(error)]
                if not refused:
                    self.tools = []
                    raise PumiceError(f"no tools are used: {error}") from None
                self.tools = [tool for tool in self.tools if tool not in refused]
                problems.append(f"the tool {refused[0].name} is left out: {error}")
                continue
            n_tokens, n_ctx = len(probe.request.prompt), self.model.n_ctx
            if n_tokens > n_ctx // 2:
                problems.append(f"the tools take {n_tokens} of {n_ctx} tokens of context; -c sets a larger one")
            break
        return problems

    def take_model(self, model: Model) -> list[str]:
        """Go on with another model and its chat template. Returns a line for each tool that is left out.

        Raises:
            PumiceError: The chat template takes no tools.
        """
        self.model = model
        for options in (self.options, self._began):
            options.pop("chat_template", None)
            if not model.template.exists:
                options["chat_template"] = ASSUMED_TEMPLATE
        return self.take_tools(self._offered)

    def leave_media(self) -> list[str]:
        """Leave out media that the model does not take. Returns a line for each kind of them.

        Those that wait for the next message are gone; ``[image]`` stands for one of an earlier message.
        """
        contents = [message["content"] for message in self.messages if isinstance(message["content"], list)]
        parts = [part for content in [self.media, *contents] for part in content]
        problems = {}
        for kind in {kind_of(part): None for part in parts if not isinstance(part, str)}:
            try:
                self.model.media.check(kind)
            except RequestError as error:
                problems[kind] = f"{error}; what this chat has is left out"
        self.media = [media for media in self.media if kind_of(media) not in problems]
        self.messages = [_without_media(message, problems) for message in self.messages]
        return list(problems.values())

    def take_defaults(self, defaults: ChatDefaults) -> None:
        """Take the defaults of a catalogue entry in place of the previous one's; the user's own settings stay."""
        earlier, self._defaults = self._defaults, defaults
        before, now = _default_options(earlier), _default_options(defaults)
        own = {name: value for name, value in self.options.items() if name not in before or value != before[name]}
        self.options = {**now, **own}
        is_new = [message for message in self.messages if message["role"] != "system"] == [*earlier.messages]
        system = self.system
        if system == (earlier.system or None):
            system = defaults.system or None
        if is_new:
            self.messages = [*defaults.messages]
        if system != self.system:
            self.system = system

    def _prepare_probe(self) -> PreparedChat:
        options = {name: value for name, value in self.options.items() if name in CHAT}
        return self.model.template.prepare([{"role": "user", "content": "?"}], **{**options, "tools": self.tools})

    def answer(self, loop: ToolLoop | None = None) -> ChatStream:
        """Return a stream of the next answer: to the last message, or of ``tool_loop``. Raises PumiceError."""
        if loop is None:
            return self.model.chat_stream(self.messages, **self.options)
        return self.model.chat_stream(loop.messages, **loop.options)

    def tool_loop(self) -> ToolLoop | None:
        """Return the turns of an answer that may call tools; None without tools. Raises PumiceError."""
        if not self.tools:
            return None
        from pumice.frontend.tool_loop import ToolLoop

        return ToolLoop(self.model, self.messages, {**self.options, "tools": self.tools}, True, MAX_TOOL_TURNS)

    def keep(self, messages: Sequence[Message]) -> None:
        self.messages += [message.to_dict() for message in messages]

    def save(self, path: Path) -> None:
        """Write ``texts`` to a JSON file atomically. Raises PumiceError."""
        write_conversation(path, self.texts)

    def load(self, path: Path) -> None:
        """Replace the messages by those of a file that ``save`` wrote, or of a JSON list. Raises PumiceError."""
        self.messages = read_conversation(path)


def _is_number(key: object) -> bool:
    return isinstance(key, str) and key.isdecimal() and len(key) < 10


def _default_options(defaults: ChatDefaults) -> dict[str, Any]:
    """Return the options of answers that an entry sets."""
    options: dict[str, Any] = {"stop": defaults.stop} if defaults.stop else {}
    if defaults.max_tokens is not None and defaults.max_tokens >= 0:
        options["max_tokens"] = defaults.max_tokens
    return options


def _without_media(message: dict[str, Any], kinds: Container[MediaKind] = KINDS) -> dict[str, Any]:
    """Return a message with texts in place of media of these kinds."""
    content = message["content"]
    if not isinstance(content, list):
        return message
    parts = [
        part if isinstance(part, str) or kind_of(part) not in kinds else media_mark(kind_of(part)) for part in content
    ]
    return {**message, "content": "\n".join(parts) if all(isinstance(part, str) for part in parts) else parts}
