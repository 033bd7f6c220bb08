"""The prompt of a command: its options, its text from the command line, a file or standard input, and its media."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pumice.cli.confined import ConfinedCommand
from pumice.cli.files import InputFile, MediaFiles
from pumice.cli.vocabulary import Decorator, option
from pumice.demo import demo_model_path
from pumice.wording import not_utf8

if TYPE_CHECKING:
    from pumice.chat.mixed import Media

_MAX_PROMPT = 1 << 30  # bytes


def file_option(help: str) -> Decorator:
    """Return the decorator of ``--file``, which ``read_prompt`` takes."""
    return option("-f", "--file", type=InputFile(path_type=Path), metavar="FILE", group="Prompt", help=help)


def media_option(name: str, files: str, help: str) -> Decorator:
    """Return the decorator of ``--image`` or ``--audio``, whose paths are the parameter ``files`` of the command."""
    kind = MediaFiles(path_type=Path, exists=True, dir_okay=False)
    help = f"{help} Repeatable, or with commas."
    return option(
        f"--{name}", files, type=kind, multiple=True, callback=_joined, metavar="FILE", group="Prompt", help=help
    )


def _joined(ctx: click.Context, param: click.Parameter, values: tuple[tuple[Path, ...], ...]) -> tuple[Path, ...]:
    return tuple(path for paths in values for path in paths)


class SeeingCommand(ConfinedCommand):
    """A command whose demo model is the one that sees, if there are images."""

    def models(self, ctx: click.Context) -> list[str]:
        return [chosen(name, ctx.params["images"]) for name in super().models(ctx)]


def chosen(model: str, images: Sequence[Path]) -> str:
    """Return the model to run: the demo that sees in place of the one that tells stories, if there are images."""
    return str(demo_model_path(vision=True)) if images and Path(model) == demo_model_path() else model


def with_media(
    text: str, images: Sequence[Path], sounds: Sequence[Path], videos: Sequence[Path] = ()
) -> list[str | Media]:
    """Return a prompt of images, sounds, videos and texts.

    Raises UsageError unless the text has a mark for each of these files, or none.
    """
    from pumice.chat.mixed import MARKER, at_markers
    from pumice.media.audio import Audio
    from pumice.media.images import Image
    from pumice.media.videos import Video

    media: list[Media] = [*map(Image, images), *map(Audio, sounds), *map(Video, videos)]
    texts = text.split(MARKER)
    if len(texts) == 1:
        return [*media, text]
    if len(texts) != len(media) + 1:
        files = {"image": images, "audio": sounds, "video": videos}
        counts = " and ".join(f"{len(paths)} --{name}" for name, paths in files.items() if paths)
        raise click.UsageError(f"the prompt has {len(texts) - 1} marks {MARKER} for {counts}")
    return list(at_markers(texts, media))


def one_prompt(text: str | None, prompt: str | None) -> str | None:
    """Return the prompt that is given, as the argument TEXT or with ``-p``. Raises UsageError if both are."""
    if text is not None and prompt is not None:
        raise click.UsageError("two prompts: one as TEXT and one with -p; give only one")
    return text if prompt is None else prompt


def read_prompt(prompt: str | None, file: Path | None, default: str | None = None) -> str:
    """Return the prompt from the option, a file or standard input; a final newline of the latter two is removed.

    Args:
        prompt: value of ``--prompt``.
        file: value of ``--file``; - reads standard input.
        default: prompt if none is given and standard input is a terminal; None: raise UsageError.
    """
    if file == Path("-"):
        prompt, file = (prompt, file) if prompt is not None else ("-", None)
    if prompt is not None and file is not None:
        raise click.UsageError("give either a prompt or --file")
    if file is None and prompt is None and sys.stdin.isatty():
        if default is not None:
            return default
        raise click.UsageError("no prompt: give one with -p TEXT or -f FILE, or pipe it in")
    where = file or ("--prompt" if prompt not in (None, "-") else "standard input")
    try:
        if where == "--prompt":
            return os.fsencode(prompt or "").decode("utf-8")
        with file.open("rb") if file else contextlib.nullcontext(sys.stdin.buffer) as stream:
            data = stream.read(_MAX_PROMPT + 1)  # a device may never end
        if len(data) > _MAX_PROMPT:
            raise click.ClickException(f"{where}: more than {_MAX_PROMPT} bytes")
        return data.decode("utf-8-sig").removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise click.ClickException(f"{where}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise click.ClickException(f"{where}: {not_utf8(error)}") from None
