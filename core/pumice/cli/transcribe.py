"""``pumice transcribe``: speech as text, with Whisper."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pumice.cli.confined import ConfinedCommand
from pumice.cli.files import STANDARD_INPUT, InputFile, ModelName, OutputFile
from pumice.cli.named_models import load_model
from pumice.cli.options import force_option, load_options
from pumice.cli.output import echo, echo_exact
from pumice.cli.vocabulary import option

if TYPE_CHECKING:
    from pumice.media.audio import Audio
    from pumice.transcription import Transcript

FORMATS = ("txt", "srt", "vtt", "json")
_OPTIONS = ("language", "task", "prompt", "hotwords", "temperature", "timestamps", "vad", "batch_size", "seed")


@click.command("transcribe", cls=ConfinedCommand)
@click.argument(
    "files",
    nargs=-1,
    required=True,
    metavar="FILE...",
    type=InputFile(path_type=Path, exists=True, dir_okay=False, allow_dash=True),
)
@option(
    "-m", "--model", "model", required=True, type=ModelName(), metavar="MODEL", group="Model", help="Whisper model."
)
@option(
    "--language",
    metavar="NAME",
    group="Generation",
    help="Spoken language, as a code (en) or a name (english).  [default: detected in the first 30 seconds]",
)
@option(
    "--task",
    type=click.Choice(["transcribe", "translate"]),
    default="transcribe",
    show_default=True,
    group="Generation",
    help="Write down what is said, or translate it to English.",
)
@option(
    "-p",
    "--prompt",
    default="",
    metavar="TEXT",
    group="Generation",
    help="Text that might come before the speech, with names and spellings that occur.",
)
@option(
    "--hotwords",
    default="",
    metavar="TEXT",
    group="Generation",
    help="Words that are expected throughout, such as names.",
)
@option(
    "--timestamps",
    type=click.Choice(["segment", "word"]),
    default="segment",
    show_default=True,
    group="Output",
    help="Times of segments, or also of each word, which is then a subtitle of its own.",
)
@option(
    "--vad",
    type=click.Choice(["off", "auto", "silero", "energy"]),
    default="off",
    show_default=True,
    group="Generation",
    help="Detector of speech by which silence of more than 2 seconds is skipped: silero (package silero-vad), energy "
    "(loudness), or auto (silero if it is installed, else energy).",
)
@option(
    "--batch-windows",
    "batch_size",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    metavar="N",
    group="Generation",
    help="Maximum number of 30-second windows decoded together, each without the text before it.",
)
@option(
    "--no-previous-text",
    is_flag=True,
    group="Generation",
    help="Hear each 30 seconds without the text before them, so that mistakes do not go on.",
)
@option(
    "--temp",
    "temperature",
    aliases=["--temperature"],
    type=click.FloatRange(0, 2),
    metavar="N",
    group="Generation",
    help="Temperature of the sampler.  [default: 0, higher for a text that is improbable or repeats itself]",
)
@option("-s", "--seed", type=click.IntRange(0), default=0, metavar="N", group="Generation", help="Seed of the sampler.")
@option(
    "--format",
    type=click.Choice(FORMATS),
    group="Output",
    help="Format of the output.  [default: the ending of --output, else txt]",
)
@option(
    "-o",
    "--output",
    "outs",
    multiple=True,
    type=OutputFile(path_type=Path),
    metavar="FILE",
    group="Output",
    help="File to write, one for each FILE.  [default: standard output]",
)
@force_option
@load_options
def command(
    files: tuple[Path, ...], model: str, outs: tuple[Path, ...], force: bool, format: str | None, **rest: Any
) -> None:
    """Write down the speech in sounds.

    Each FILE is a sound of up to 30 minutes: WAV, FLAC, OGG, MP3 or AIFF; - is standard input.
    """
    from pumice.gguf.output import NewFiles

    if outs and len(outs) != len(files):
        raise click.UsageError(f"{len(outs)} --output for {len(files)} sounds; give one for each, or none")
    if len(files) > 1 and not outs and format not in (None, "txt"):
        raise click.UsageError(f"several sounds as {format} need an --output each")
    options = {name: rest.pop(name) for name in _OPTIONS}
    options["previous_text"] = not rest.pop("no_previous_text")
    with NewFiles(list(outs), force=force) if outs else nullcontext() as new, load_model(model, rest) as loaded:
        for number, file in enumerate(files):
            transcript = loaded.speech.transcribe(_sound(file), **options)
            if new is None:
                if len(files) > 1:
                    echo(f"{file}:")
                for text in _texts(transcript, format or "txt"):
                    echo_exact(text, nl=False)
                continue
            new.next()
            new.write("".join(_texts(transcript, format or _ending(outs[number]))).encode())


def _sound(file: Path) -> Path | Audio:
    """Return the sound of a file, or of standard input."""
    from pumice.media.audio import Audio
    from pumice.media.encoded import MAX_BYTES

    return Audio(sys.stdin.buffer.read(MAX_BYTES + 1)) if str(file) == STANDARD_INPUT else file


def _ending(path: Path) -> str:
    """Return the format that a file's name asks for."""
    ending = path.suffix.removeprefix(".").lower()
    return ending if ending in FORMATS else "txt"


def _texts(transcript: Transcript, format: str) -> Iterator[str]:
    """Yield the parts of a transcript; those of a text as soon as they are decoded."""
    from pumice.transcription import write

    if format != "txt":
        yield write(transcript, format)
        return
    for segment in transcript:
        yield f"{segment.text.strip()}\n"
