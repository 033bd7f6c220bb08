"""``pumice run``: continue a prompt, and write the text to standard output as it is generated."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from pumice.cli.confined import ConfinedCommand
from pumice.cli.files import InputFile, MediaFile
from pumice.cli.llama_options import LlamaCommand
from pumice.cli.named_models import load_model
from pumice.cli.options import load_options, model_argument, read_text, sampling_options, take_sampling
from pumice.cli.vocabulary import Decorator, defined, option
from pumice.demo import DEMOS, demo_model_path
from pumice.options import OUTPUT, REQUEST

if TYPE_CHECKING:
    from pumice.chat.mixed import Media
    from pumice.hub.catalogue import ChatDefaults
    from pumice.model import Model
    from pumice.streaming.stream import Stream

FORM = (
    "grammar",
    "json_schema",
    "regex",
    "diffusion_steps",
    "diffusion_algorithm",
    "block_length",
    "cfg_scale",
)  # options of streams
_MAX_PROMPT = 1 << 30  # bytes


def file_option(help: str) -> Decorator:
    """Return the decorator of ``--file``, which ``read_prompt`` takes."""
    return option("-f", "--file", type=InputFile(path_type=Path), metavar="FILE", group="Prompt", help=help)


def media_option(name: str, files: str, help: str) -> Decorator:
    """Return the decorator of ``--image`` or ``--audio``, whose paths are the parameter ``files`` of the command."""
    path = MediaFile(path_type=Path)
    return option(f"--{name}", files, type=path, multiple=True, metavar="FILE", group="Prompt", help=help)


def read_argument(ctx: click.Context, param: click.Parameter, text: str | None) -> str | None:
    """Return an option's text, or the text of the file that it names after an @."""
    name = max(param.opts, key=len)
    if text is None or not text.startswith("@"):
        if text and os.path.isfile(text):
            raise click.BadParameter(f"{text!r} is a file; {name} @{text} reads it", ctx=ctx, param=param)
        return text
    return read_text(f"the value of {name}", Path(text[1:]))


class SeeingCommand(ConfinedCommand):
    """A command whose demo model is the one that sees, if there are images."""

    def models(self, ctx: click.Context) -> list[str]:
        return [chosen(name, ctx.params["images"]) for name in super().models(ctx)]


def chosen(model: str, images: Sequence[Path]) -> str:
    """Return the model to run: the demo that sees in place of the one that tells stories, if there are images."""
    return str(demo_model_path(vision=True)) if images and Path(model) == demo_model_path() else model


class RunCommand(LlamaCommand, SeeingCommand):
    """`pumice run`, which points to `pumice chat` for the options of chats."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            from pumice.cli.chat import command as chat

            if any(error.option_name in param.opts for param in chat.params):
                raise click.UsageError(
                    f"{error.option_name} is an option of chats; `run` applies no chat template, `pumice chat` does",
                    ctx,
                ) from None
            raise


@click.command("run", cls=RunCommand)
@model_argument
@click.argument("text", required=False)
@option("-p", "--prompt", metavar="TEXT", group="Prompt", help="Text to continue; - reads standard input.")
@file_option("Read the prompt from FILE; - reads standard input, as a pipe does.")
@media_option(
    "image",
    "images",
    "Image for a vision model; inserted before the prompt, or at each <__media__>. Repeatable.",
)
@media_option(
    "audio",
    "sounds",
    "Sound for a model that hears: like --image, and after the images. Repeatable.",
)
@media_option(
    "video",
    "videos",
    "Video for a vision model: like --image, and after the sounds. Repeatable.",
)
@defined(
    REQUEST["max_tokens"],
    help="Maximum number of tokens to generate; -1: until the model ends the text.  [default: 128; demo models: -1]",
    metavar="N",
)
@defined(
    REQUEST["stop"], multiple=True, metavar="TEXT", help="Text that ends the generation and is left out. Repeatable."
)
@defined(
    OUTPUT["grammar"],
    metavar="TEXT",
    callback=read_argument,
    help="Grammar of the text, in GBNF or Lark; @FILE reads a file.",
)
@defined(
    OUTPUT["json_schema"], metavar="JSON", callback=read_argument, help="JSON schema of the text; @FILE reads a file."
)
@defined(OUTPUT["regex"], metavar="TEXT")
@defined(REQUEST["diffusion_steps"], advanced=True)
@defined(REQUEST["diffusion_algorithm"], advanced=True, help=REQUEST["diffusion_algorithm"].meaning)
@defined(REQUEST["block_length"], advanced=True)
@defined(REQUEST["cfg_scale"], advanced=True, help=REQUEST["cfg_scale"].meaning)
@sampling_options
@load_options
def command(
    model: str,
    text: str | None,
    prompt: str | None,
    file: Path | None,
    images: tuple[Path, ...],
    sounds: tuple[Path, ...],
    videos: tuple[Path, ...],
    max_tokens: int | None,
    stop: tuple[str, ...],
    **rest: Any,
) -> None:
    """Continue a prompt.

    The prompt is TEXT, the one of -p or -f, or standard input. MODEL is a GGUF file, or a name such as
    hf.co/owner/repository:Q4_K_M. The default is a demo model that comes with Pumice: one tells a story without a
    prompt, another one names the shapes in an --image.

    Text goes to standard output as it is generated, timings go to standard error. Other sampling parameters are set by
    their configuration keys: --set sampling.typical_p=0.9
    """
    model = chosen(model, images)
    demo = Path(model) in DEMOS.values()
    if text is not None and prompt is not None:
        raise click.UsageError("two prompts: one as TEXT and one with -p; give only one")
    text = read_prompt(text if prompt is None else prompt, file, "" if demo or images or sounds or videos else None)
    from pumice.hub.catalogue import chat_defaults

    defaults = chat_defaults(model)
    if max_tokens is None:
        usual = -1 if demo else 128
        max_tokens = usual if defaults.max_tokens is None else defaults.max_tokens
    sampling = take_sampling(rest)
    form: dict[str, Any] = {name: value for name in FORM if (value := rest.pop(name)) is not None}
    with load_model(model, rest) as loaded:
        if not demo and (of_chats := _of_chats(loaded, defaults)):
            click.echo(f"note: {model} has {of_chats}; `run` applies none, `pumice chat {model}` does", err=True)
        read = with_media(text, images, sounds, videos) if images or sounds or videos else text
        stops = stop or tuple(defaults.stop)
        stream = loaded.stream(read, max_tokens=None if max_tokens < 0 else max_tokens, stop=stops, **form, **sampling)
        with stream:
            completed = write(stream)
        click.echo(format_timings(loaded, stream), err=True)
    if not completed:
        raise click.Abort


def _of_chats(model: Model, defaults: ChatDefaults) -> str:
    """Return what only chats with a model use; empty if there is nothing."""
    if model.has_chat_template:
        return "a chat template"
    return "a system message or messages" if defaults.system or defaults.messages else ""


def with_media(
    text: str, images: Sequence[Path], sounds: Sequence[Path], videos: Sequence[Path] = ()
) -> list[str | Media]:
    """Return a prompt of images, sounds, videos and texts.

    Raises UsageError unless the text has a mark for each of these files, or none.
    """
    from pumice.audio import Audio
    from pumice.chat.mixed import MARKER, at_markers
    from pumice.images import Image
    from pumice.videos import Video

    media: list[Media] = [*map(Image, images), *map(Audio, sounds), *map(Video, videos)]
    texts = text.split(MARKER)
    if len(texts) == 1:
        return [*media, text]
    if len(texts) != len(media) + 1:
        files = {"image": images, "audio": sounds, "video": videos}
        counts = " and ".join(f"{len(paths)} --{name}" for name, paths in files.items() if paths)
        raise click.UsageError(f"the prompt has {len(texts) - 1} marks {MARKER} for {counts}")
    return list(at_markers(texts, media))


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
            raise click.ClickException(f"cannot read the prompt: {where}: more than {_MAX_PROMPT} bytes")
        return data.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise click.ClickException(f"cannot read the prompt: {where}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise click.ClickException(f"the prompt is not UTF-8: byte {error.start} of {where}") from None


def write(stream: Stream) -> bool:
    """Write the pieces of a stream, and return True if it was completed; Ctrl-C ends it early.

    A newline follows the text on a terminal, and in a file that standard error is written to as well.
    """
    output = sys.stdout.buffer
    completed = False
    try:
        with contextlib.suppress(KeyboardInterrupt):
            for piece in stream:
                output.write(piece.text.encode("utf-8", "replace"))
                output.flush()
            completed = True
    finally:
        if sys.stdout.isatty() or _is_shared(sys.stdout, sys.stderr):
            click.echo()
    return completed


def _is_shared(first: TextIO, second: TextIO) -> bool:
    """Return True if both are written to one file or pipe."""
    try:
        return os.path.sameopenfile(first.fileno(), second.fileno())
    except (AttributeError, OSError, ValueError):  # absent, closed, or no file of the system
        return False


def format_timings(model: Model, stream: Stream) -> str:
    """Return a line with seconds, tokens and tokens/s of loading, prompt and generation."""
    timings = stream.timings
    generated = f"generation {_count(timings.generated_tokens)}"
    if timings.generated_tokens > 1:  # the first token belongs to the prompt's time
        generated += f", {timings.generation_per_second:.1f} tokens/s"
    if timings.n_drafted:
        generated += f", {timings.n_accepted} of {timings.n_drafted} drafted tokens right"
    return (
        f"load {model.load_seconds:.2f} s on {', '.join(model.backends)} · "
        f"prompt {_count(timings.prompt_tokens)}, {timings.prompt_per_second:.1f} tokens/s · {generated}"
    )


def _count(n: int) -> str:
    return "1 token" if n == 1 else f"{n} tokens"
