"""The first message of a chat: its options, and its text from the command line, a file or standard input."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from pumice.cli.escapes import escape_option, unescape
from pumice.cli.options import CommandFunction
from pumice.cli.prompt import file_option, media_option, read_prompt
from pumice.cli.vocabulary import option, with_options
from pumice.wording import not_utf8

if TYPE_CHECKING:
    from pumice.cli.chat.conversation import Conversation

_OPTIONS: list[Callable[[CommandFunction], CommandFunction]] = [
    option(
        "-p",
        "--prompt",
        metavar="TEXT",
        group="Prompt",
        help="First message; unlike after MESSAGE, the chat goes on if standard input is a terminal.",
    ),
    file_option("Read the first message from FILE; the chat goes on as after -p."),
    media_option("image", "images", "Image of the first message, for a vision model."),
    media_option("audio", "sounds", "Sound of the first message, for an audio model."),
    media_option("video", "videos", "Video of the first message, for a vision model."),
    escape_option("the first message and in -r"),
    option("-st", "--single-turn", is_flag=True, group="Chat", help="End the chat after the first answer."),
]


class FirstMessage(NamedTuple):
    """The first message of a chat.

    Attributes:
        text: None if the user types it.
        is_session: True if the chat takes messages from the terminal, after this one.
        is_single: True if the chat ends after the first answer.
        images: Files of images, like ``sounds`` and ``videos``, that belong to the first message.
    """

    text: str | None
    is_session: bool
    is_single: bool
    images: tuple[Path, ...]
    sounds: tuple[Path, ...]
    videos: tuple[Path, ...]

    def attach(self, conversation: Conversation) -> None:
        """Let the images, sounds and videos wait for the first message. Raises PumiceError."""
        for paths, add in (
            (self.images, conversation.show),
            (self.sounds, conversation.play),
            (self.videos, conversation.watch),
        ):
            for path in paths:
                add(path)


def message_options(command: CommandFunction) -> CommandFunction:
    """Add the options that ``take_first_message`` takes."""
    return with_options(command, _OPTIONS)


def take_first_message(message: str | None, options: dict[str, Any]) -> FirstMessage:
    """Remove the options of the first message, and return it.

    Args:
        message: Argument MESSAGE, the only message of the chat.
        options: Options of the command; a true ``escape`` also holds for the texts of ``stop``.

    Raises:
        UsageError: Several messages are given, or none where standard input is no terminal.
    """
    prompt, file, is_escaped = options.pop("prompt"), options.pop("file"), options.pop("escape")
    is_single, is_terminal = options.pop("single_turn"), sys.stdin.isatty()
    if message is not None and (prompt is not None or file is not None):
        raise click.UsageError("two messages: one as MESSAGE and one with -p or -f; give only one")
    begins = (prompt is not None or file is not None) and not (prompt == "-" or file == Path("-"))
    text = read_prompt(prompt, file) if begins else message
    if is_escaped:
        text = None if text is None else unescape(text)
        options["stop"] = tuple(map(unescape, options["stop"]))
    if begins and not text and is_terminal:
        text = None
    is_session = is_terminal and (text is None or (begins and not is_single))
    if not is_terminal:
        text = _with_piped(text)
    media = (options.pop("images"), options.pop("sounds"), options.pop("videos"))
    if not is_terminal and not text and not any(media):
        raise click.UsageError("no message: give one with -p TEXT or -f FILE, or pipe it in")
    return FirstMessage(text, is_session, is_single, *media)


def _with_piped(text: str | None) -> str:
    """Return piped input, or the text, or both, the piped one first."""
    try:
        piped = sys.stdin.buffer.read().decode("utf-8-sig").strip()
    except UnicodeDecodeError as error:
        raise click.ClickException(f"standard input: {not_utf8(error)}") from None
    return "\n\n".join(part for part in (piped, text) if part)
