"""``pumice run``: continue a prompt; text goes to standard output as it comes."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pumice.cli.options import (
    load_model,
    load_options,
    model_argument,
    no_sandbox_option,
    sampling_options,
    take_sampling,
)
from pumice.demo import demo_model_path

if TYPE_CHECKING:
    from pumice.model import Model
    from pumice.stream import Stream

FORM = ("regex", "diffusion_steps", "diffusion_algorithm", "block_length", "cfg_scale")  # of a stream, as options


@click.command("run")
@model_argument
@click.option("-p", "--prompt", help="Text to continue; - or a pipe: standard input, less one newline at its end.")
@click.option("-f", "--file", type=click.Path(path_type=Path), help="Read the prompt.")
@click.option(
    "-n",
    "--n-predict",
    type=int,
    help="Most tokens to generate; -1: until the model ends.  [default: 128; demo model: -1]",
)
@click.option("--stop", multiple=True, metavar="TEXT", help="End at this text, which is left out. Repeatable.")
@click.option("--ignore-eos", is_flag=True, help="Go on after the model ends its text.")
@click.option("--grammar", metavar="TEXT", help="What the text has to look like, in GBNF or Lark; @FILE reads a file.")
@click.option("-j", "--json-schema", metavar="JSON", help="The same as a JSON schema; @FILE reads a file.")
@click.option("--regex", metavar="TEXT", help="The same as a regular expression.")
@click.option("--diffusion-steps", type=int, help="Of a model that generates by diffusion.  [default: one a token]")
@click.option("--diffusion-algorithm", help="What it fills first: confidence, entropy, margin, random, origin.")
@click.option(
    "--diffusion-block-length", "block_length", type=int, help="Tokens that it fills before those after them."
)
@click.option(
    "--diffusion-cfg-scale", "cfg_scale", type=float, help="How far it goes away from what it says without a prompt."
)
@sampling_options
@load_options
@no_sandbox_option
def command(
    model: str,
    prompt: str | None,
    file: Path | None,
    n_predict: int | None,
    stop: tuple[str, ...],
    ignore_eos: bool,
    **rest: Any,
) -> None:
    """Continue a prompt.

    MODEL is a GGUF file, or a name such as hf.co/owner/repository:Q4_K_M. Without it the demo model that comes with
    Pumice is taken; that one needs no prompt to tell a story.

    The text goes to standard output as it comes, timings to standard error. Further sampling parameters are
    set as in a configuration file: --set sampling.typical_p=0.9
    """
    demo = Path(model) == demo_model_path()
    text = read_prompt(prompt, file, "" if demo else None)
    if n_predict is None:
        n_predict = -1 if demo else 128
    sampling = take_sampling(rest)
    if ignore_eos:
        sampling["ignore_eos"] = True
    form: dict[str, Any] = {name: read_argument(rest.pop(name)) for name in ("grammar", "json_schema")}
    form |= {name: value for name in FORM if (value := rest.pop(name)) is not None}
    with load_model(model, rest) as loaded:
        if "tokenizer.chat_template" in loaded.metadata and not demo:
            click.echo(f"note: {model} has a chat template; `run` applies none, `pumice chat {model}` does", err=True)
        stream = loaded.stream(text, max_tokens=None if n_predict < 0 else n_predict, stop=stop, **form, **sampling)
        with stream:
            completed = write(stream)
        click.echo(format_timings(loaded, stream), err=True)
    if not completed:
        raise click.Abort


def read_prompt(prompt: str | None, file: Path | None, default: str | None = None) -> str:
    """The prompt as given, or from a file or standard input; there one newline at the end is not part of it.

    ``default`` is the prompt where nothing is given and nobody pipes anything in; None: that is an error.
    """
    if file == Path("-"):
        prompt, file = (prompt, file) if prompt is not None else ("-", None)
    if prompt is not None and file is not None:
        raise click.UsageError("give either --prompt or --file")
    if file is None and prompt is None and sys.stdin.isatty():
        if default is not None:
            return default
        raise click.UsageError("no prompt: give one with -p TEXT or -f FILE, or pipe it in")
    where = file or ("--prompt" if prompt not in (None, "-") else "standard input")
    try:
        if where == "--prompt":
            return os.fsencode(prompt or "").decode("utf-8")
        data = file.read_bytes() if file else sys.stdin.buffer.read()
        return data.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise click.ClickException(f"cannot read the prompt: {where}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise click.ClickException(f"the prompt is not UTF-8: byte {error.start} of {where}") from None


def read_argument(text: str | None) -> str | None:
    """An option's text, or that of the file which it names after an @."""
    if text is None or not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise click.ClickException(f"cannot read {text[1:]}: {reason}") from None


def write(stream: Stream) -> bool:
    """Write pieces as they come, and say whether it was all of them: Ctrl-C ends the text early.

    A terminal gets a newline at the end, a file the text alone.
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
        if sys.stdout.isatty():
            click.echo()
    return completed


def format_timings(model: Model, stream: Stream) -> str:
    """Seconds, tokens and tokens/s of loading, prompt and generation."""
    timings = stream.timings
    generated = f"generation {_count(timings.generated_tokens)}"
    if timings.generated_tokens > 1:  # the first comes out of the prompt
        generated += f", {timings.generation_per_second:.1f} tokens/s"
    return (
        f"load {model.load_seconds:.2f} s on {', '.join(model.backends)} · "
        f"prompt {_count(timings.prompt_tokens)}, {timings.prompt_per_second:.1f} tokens/s · {generated}"
    )


def _count(n: int) -> str:
    return "1 token" if n == 1 else f"{n} tokens"
