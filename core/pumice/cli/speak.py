"""``pumice speak``: a text as a file of sound."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from pumice.cli.confined import ConfinedCommand
from pumice.cli.files import InputFile, OutputFile
from pumice.cli.named_models import load_model
from pumice.cli.options import force_option, load_options, model_argument
from pumice.cli.output import echo
from pumice.cli.progress import show_progress
from pumice.cli.prompt import read_prompt
from pumice.cli.vocabulary import defined, option
from pumice.options import SAMPLING


@click.command("speak", cls=ConfinedCommand)
@click.argument("text")
@model_argument
@option(
    "-o",
    "--output",
    "out",
    required=True,
    type=OutputFile(path_type=Path),
    metavar="FILE",
    group="Output",
    help="File to write: .wav, .flac, .mp3, .opus, or .pcm, samples without a header.",
)
@force_option
@option(
    "--voice",
    type=InputFile(path_type=Path),
    metavar="FILE",
    group="Prompt",
    help="Voice to speak with: OuteTTS's JSON format, else a sound.  [default: the model's choice]",
)
@option(
    "--speaker",
    metavar="NAME",
    group="Prompt",
    help="Voice of the model's own, of a Qwen3-TTS that has some, such as serena; excludes --voice.",
)
@option(
    "--language",
    metavar="NAME",
    group="Prompt",
    help="Language of the text, for Qwen3-TTS, such as english.  [default: the model's choice]",
)
@option(
    "--max-seconds",
    type=click.FloatRange(min=0, min_open=True),
    metavar="N",
    group="Generation",
    help="Maximum length of the sound in seconds.  [default: 600]",
)
@defined(
    SAMPLING["temperature"],
    help="Temperature of the sampler.  [default: 0.1 for OuteTTS, 0.3 for Pocket TTS, 0.9 for Qwen3-TTS]",
)
@defined(SAMPLING["seed"])
@load_options
def command(
    text: str,
    model: str,
    out: Path,
    force: bool,
    voice: Path | None,
    speaker: str | None,
    language: str | None,
    max_seconds: float | None,
    **rest: Any,
) -> None:
    """Write a text as speech.

    TEXT is read from standard input if it is -. MODEL is a model that speaks: OuteTTS 0.2 or 0.3, with the vocoder
    WavTokenizer beside it or as --vocoder, or Pocket TTS or Qwen3-TTS with its mmproj file beside it or as --mmproj.
    """
    from pumice.frontend.speech import DEFAULT_SECONDS
    from pumice.gguf.output import NewFiles
    from pumice.media.sound_files import check_format, encode_file
    from pumice.speech.waveform import RATE

    if speaker and voice:
        raise click.UsageError("--speaker and --voice exclude each other")
    spoken = read_prompt(text, None)
    sampling = {name: rest.pop(name) for name in ("temperature", "seed")}
    kind = out.suffix.removeprefix(".").lower()
    check_format(kind)
    with NewFiles([out], force=force) as file:
        with load_model(model, rest) as loaded, show_progress("speaking", unit="s") as progress:
            if speaker and not loaded.speech.has_voice(speaker):
                raise click.UsageError(f"--speaker: this model has no voice {speaker!r:.60}")
            sound = loaded.speech.speak(
                spoken,
                voice=speaker or voice,
                max_seconds=max_seconds or DEFAULT_SECONDS,
                language=language or "",
                progress=lambda seconds: progress(round(seconds), 0),
                **sampling,
            )
        file.next()
        file.write(encode_file(sound.source, RATE, kind))
    echo(f"{out}: {len(sound.source) / RATE:.1f} s", err=True)
