"""``pumice run``: continue a prompt, and write the text to standard output as it is generated."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from pumice.cli.escapes import escape_option, unescape
from pumice.cli.llama_options import LlamaCommand
from pumice.cli.named_models import load_model
from pumice.cli.options import load_options, model_argument, offline_option, sampling_options, take_sampling
from pumice.cli.output import echo, echo_exact
from pumice.cli.prompt import SeeingCommand, chosen, file_option, media_option, one_prompt, read_prompt, with_media
from pumice.cli.sampler_options import chain_options, logit_bias_option, take_chain
from pumice.cli.structured_output import output_options, take_output
from pumice.cli.vocabulary import defined, option
from pumice.demo import DEMOS
from pumice.options import REQUEST
from pumice.wording import counted_as

if TYPE_CHECKING:
    from pumice.hub.catalogue import ChatDefaults
    from pumice.model import Model
    from pumice.streaming.stream import Stream

_PASSED = ("logit_bias", "context_shift", "diffusion_steps", "diffusion_algorithm", "block_length", "cfg_scale")
"""Options of the command that are options of ``Model.stream``."""


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
@media_option("image", "images", "Image for a vision model; inserted before the prompt, or at each <__media__>.")
@media_option("audio", "sounds", "Sound for an audio model: like --image, and after the images.")
@media_option("video", "videos", "Video for a vision model: like --image, and after the sounds.")
@escape_option("the prompt and in -r")
@option(
    "--display-prompt/--no-display-prompt",
    default=False,
    group="Prompt",
    advanced=True,
    help="Write the prompt before the text.",
)
@defined(
    REQUEST["max_tokens"],
    help="Maximum number of tokens to generate; -1: until the model ends the text.  [default: 128; demo models: -1]",
    metavar="N",
)
@defined(
    REQUEST["stop"], multiple=True, metavar="TEXT", help="Text that ends the generation and is left out. Repeatable."
)
@defined(REQUEST["context_shift"], advanced=True)
@output_options()
@defined(REQUEST["diffusion_steps"], advanced=True)
@defined(REQUEST["diffusion_algorithm"], advanced=True, help=REQUEST["diffusion_algorithm"].meaning)
@defined(REQUEST["block_length"], advanced=True)
@defined(REQUEST["cfg_scale"], advanced=True, help=REQUEST["cfg_scale"].meaning)
@sampling_options
@chain_options
@logit_bias_option
@offline_option
@load_options
def command(
    model: str,
    text: str | None,
    prompt: str | None,
    file: Path | None,
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
    images, sounds, videos = (rest.pop(name) for name in ("images", "sounds", "videos"))
    model = chosen(model, images)
    demo, has_media = Path(model) in DEMOS.values(), bool(images or sounds or videos)
    text = read_prompt(one_prompt(text, prompt), file, "" if demo or has_media else None)
    shown = rest.pop("display_prompt")
    if rest.pop("escape"):
        text, stop = unescape(text), tuple(map(unescape, stop))
    from pumice.hub.catalogue import chat_defaults

    defaults = chat_defaults(model)
    if max_tokens is None:
        usual = -1 if demo else 128
        max_tokens = usual if defaults.max_tokens is None else defaults.max_tokens
    options = take_sampling(rest) | take_chain(rest) | take_output(rest)
    options |= {name: value for name in _PASSED if (value := rest.pop(name)) is not None}
    began = time.perf_counter()
    with load_model(model, rest) as loaded:
        seconds = time.perf_counter() - began
        if not demo and (of_chats := _of_chats(loaded, defaults)):
            named = f"./{model}" if model.startswith("-") else model  # a path, which would be read as an option
            chat = f"pumice chat {shlex.quote(named)}"
            echo(f"note: {model} has {of_chats}; `run` applies none, `{chat}` does", err=True)
        read = with_media(text, images, sounds, videos) if has_media else text
        stops = stop or tuple(defaults.stop)
        stream = loaded.stream(read, max_tokens=None if max_tokens < 0 else max_tokens, stop=stops, **options)
        with stream:
            completed = write(stream, text if shown else "")
        echo(format_timings(loaded, stream, seconds), err=True)
    if not completed:
        raise click.Abort


def _of_chats(model: Model, defaults: ChatDefaults) -> str:
    """Return what only chats with a model use; empty if there is nothing."""
    if model.template.exists:
        return "a chat template"
    return "a system message or messages" if defaults.system or defaults.messages else ""


def write(stream: Stream, prompt: str = "") -> bool:
    """Write a prompt and the pieces of a stream, and return True if it was completed; Ctrl-C ends it early.

    A newline follows the text on a terminal, and in a file that standard error is written to as well.
    """
    completed = False
    try:
        with contextlib.suppress(KeyboardInterrupt):
            echo_exact(prompt, nl=False)
            for piece in stream:
                echo_exact(piece.text, nl=False)
            completed = True
    finally:
        if sys.stdout.isatty() or _is_shared(sys.stdout, sys.stderr):
            echo()
    return completed


def _is_shared(first: TextIO, second: TextIO) -> bool:
    """Return True if both are written to one file or pipe."""
    try:
        return os.path.sameopenfile(first.fileno(), second.fileno())
    except (AttributeError, OSError, ValueError):  # absent, closed, or no file of the system
        return False


def format_timings(model: Model, stream: Stream, load_seconds: float) -> str:
    """Return a line with seconds, tokens and tokens/s of loading, prompt and generation."""
    timings = stream.timings
    generated = f"generation {counted_as(timings.generated_tokens, 'token')}"
    if timings.generated_tokens > 1:  # the first token belongs to the prompt's time
        generated += f", {timings.generation_per_second:.1f} tokens/s"
    if timings.n_drafted:
        generated += f", {timings.n_accepted} of {timings.n_drafted} drafted tokens right"
    read = f"prompt {counted_as(timings.prompt_tokens, 'token')}"
    if timings.prompt_cached:  # which the rate leaves out
        read += f", {timings.prompt_cached} of them cached"
    read += f", {timings.prompt_per_second:.1f} tokens/s"
    return f"load {load_seconds:.2f} s on {', '.join(model.backends)} · {read} · {generated}"
