"""Transcripts: the rules of times, windows, fallback and previous text, and the command, with a tiny random Whisper."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import pumice
from hearing_models import RATE, SECONDS, sound
from pumice.cli import cli
from pumice.convert import ConvertOptions, write_model
from pumice.engine import Request, Timings
from pumice.engine.messages import Logprobs, Span
from pumice.errors import RequestError
from pumice.gguf import GGMLType
from pumice.model_files.opening import open_model
from pumice.plugin import Candidates, SamplerContext
from pumice.streaming.pieces import Completion
from pumice.subtitles import subrip, webvtt
from pumice.transcription import TranscribeOptions, Transcriber, Transcript
from pumice_samplers.timestamps import LATEST_FIRST, Timestamps
from whisper_models import END, FIRST_TIME, GERMAN, N_VOCAB, PREVIOUS, SILENCE, SPECIAL, START, TRANSCRIBE, write_folder

METADATA = {
    "general.architecture": "whisper",
    "whisper.context_length": 64,
    "tokenizer.ggml.tokens": [*["x"] * END, *SPECIAL],
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pumice.Model]:
    folder = write_folder(tmp_path_factory.mktemp("whisper") / "tiny")
    with open_model(folder, options=ConvertOptions(GGMLType.F32)) as file:
        write_model(file, folder / "model.gguf")
    with pumice.load(folder / "model.gguf", backend="numpy") as loaded:
        yield loaded


class Tokenizer:
    eos = END


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0.1, 30))
def test_times_follow_whispers_rules(seed: int, spread: float) -> None:
    random = np.random.default_rng(seed)
    sampler = Timestamps(FIRST_TIME, [GERMAN, TRANSCRIBE])
    sampler.start(SamplerContext(N_VOCAB, tokenizer=Tokenizer()))  # type: ignore[arg-type]
    for token in (0, PREVIOUS, 5, START):  # a prompt
        sampler.accept(token)
    tokens: list[int] = []
    while len(tokens) < 60 and END not in tokens:
        logits = random.normal(0, spread, N_VOCAB).astype(np.float32)
        logits[END] -= 2 * spread
        candidates = Candidates(logits.copy())
        sampler.apply(candidates)
        allowed = set(candidates.ids.tolist())
        tokens.append(int(candidates.ids[candidates.logits.argmax()]))
        if len(tokens) > 2 and not all(token >= FIRST_TIME for token in allowed):
            of_times = logits[[token for token in allowed if token >= FIRST_TIME]].astype(np.float64)
            if len(of_times):
                assert np.log(np.exp(of_times).sum()) <= max(logits[token] for token in allowed if token <= END) + 1e-3
        sampler.accept(tokens[-1])
    assert tokens[:2] == [GERMAN, TRANSCRIBE]
    rest = tokens[2:]
    assert FIRST_TIME <= rest[0] <= FIRST_TIME + LATEST_FIRST
    times = [token for token in rest if token >= FIRST_TIME]
    assert times == sorted(times)
    assert all(token <= END or token >= FIRST_TIME for token in rest)
    kinds = "".join("t" if token >= FIRST_TIME else "." for token in rest if token != END)
    assert "ttt" not in kinds
    assert not kinds.startswith("tt")
    assert ".t." not in kinds


@dataclass
class Scripted:
    """A model whose answers are given: token ids with their log-probabilities, and how probable silence is."""

    answers: list[tuple[Sequence[int], float, float]]
    language: int = GERMAN
    requests: list[Request] = field(default_factory=list)
    heard: list[float] = field(default_factory=list)

    def hear(self, samples: Any) -> Sequence[Span]:
        self.heard.append(len(samples) / RATE)
        return [Span(0, np.zeros((3, 16), np.float32), kind="audio")]

    def decode(self, request: Request) -> Completion:
        if request.max_tokens == 1:
            item = Logprobs(-0.5, [(self.language, math.log(0.6)), (START, math.log(0.2)), (GERMAN - 1, math.log(0.2))])
            return Completion("", [self.language], "length", Timings(), [item])
        self.requests.append(request)
        tokens, logprob, silence = self.answers.pop(0)
        forced = list(request.sampling["forced_tokens"])
        first = Logprobs(0.0, [(SILENCE, math.log(silence or 1e-9))])
        return Completion(
            "", [*forced, *tokens], "stop", Timings(), [first, first, *[Logprobs(logprob, [])] * len(tokens)]
        )

    def spelled(self, tokens: Sequence[int]) -> str:
        return "".join(f" {token}" for token in tokens if token < END)

    def tokens_of(self, text: str) -> list[int]:
        return [int(part) for part in text.split()]


def times(*seconds: float) -> list[int]:
    return [FIRST_TIME + round(second / 0.02) for second in seconds]


def transcribed(model: Scripted, seconds: float, **options: Any) -> tuple[list[tuple[float, float, str]], Transcript]:
    transcript = Transcript(Transcriber(model, METADATA, TranscribeOptions(**options)), np.zeros(round(seconds * RATE)))
    return [(round(segment.start, 2), round(segment.end, 2), segment.text) for segment in transcript], transcript


def test_improbable_and_repeating_texts_are_decoded_again_and_silence_is_left_out() -> None:
    repeats = [*times(0), *[7, 8] * 20, *times(5)]
    good = [*times(0), 7, *times(5)]
    answers = [(repeats, -0.1, 0), (good, -1.5, 0), (good, -0.5, 0)]
    segments, transcript = transcribed(Scripted(list(answers)), 5, language="de")
    assert segments == [(0, 5, " 7")]
    assert [segment.temperature for segment in transcript.segments] == [0.4]
    all_bad = Scripted([(repeats, -0.1, 0), *[(good, -1.5 - i / 10, 0) for i in (3, 0, 1, 2, 4)]])
    _, transcript = transcribed(all_bad, 5, language="de")
    assert [segment.temperature for segment in transcript.segments] == [0.4]  # the most probable that does not repeat
    assert transcribed(Scripted([(good, -1.5, 0.9)]), 5, language="de")[0] == []
    assert transcribed(Scripted([(good, -0.5, 0.9)]), 5, language="de")[0] == [(0, 5, " 7")]
    _, transcript = transcribed(Scripted([(repeats, -3, 0)]), 5, language="de", temperature=0.3)
    assert [segment.temperature for segment in transcript.segments] == [0.3]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.integers(0, 1 << 11), max_size=30), min_size=50, max_size=50), st.floats(0.3, 100))
def test_every_answer_leads_to_an_end(answers: list[list[int]], seconds: float) -> None:
    """Whatever the tokens: segments are within the sound, and each window begins after the one before."""
    answers = [[token for token in tokens if token < END or token >= FIRST_TIME] for tokens in answers]
    model = Scripted([(tokens, -0.1, 0) for tokens in answers * 100])
    _, transcript = transcribed(model, seconds, language="en", temperature=0.0)
    assert all(0 <= segment.start < segment.end <= seconds + 1e-4 for segment in transcript.segments)
    seeks = [segment.seek for segment in transcript.segments]
    assert seeks == sorted(seeks)
    assert sum(model.heard) >= seconds - 0.3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"language": "klingon"}, "no language of the model"),
        ({"language": "fr"}, "no language of the model"),
        ({"task": "sing"}, "task must be"),
        ({"temperature": -1}, "temperature must be"),
        ({"temperature": True}, "temperature must be"),
        ({"prompt": 3}, "prompt must be"),
    ],
)
def test_wrong_options_are_refused(model: pumice.Model, options: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        model.speech.transcribe(pumice.Audio(sound(SECONDS), rate=RATE), **options)


def test_a_model_transcribes(model: pumice.Model, tmp_path: Path) -> None:
    samples = sound(32)
    once, again = (list(model.speech.transcribe(pumice.Audio(samples, rate=RATE), language="de")) for _ in range(2))
    assert once == again  # its random numbers have a seed
    assert all(0 <= segment.start < segment.end <= 32.02 for segment in once)
    assert [segment.id for segment in once] == list(range(len(once)))
    pumice.Audio(samples[: 2 * RATE], rate=RATE).save(tmp_path / "a.wav")
    path = str(model.engine.file.path)
    for form in ("txt", "srt", "vtt", "json"):
        arguments = ["transcribe", str(tmp_path / "a.wav"), "-m", path, "--backend", "numpy", "--language", "de"]
        result = CliRunner().invoke(cli, [*arguments, "-o", str(tmp_path / f"a.{form}")])
        assert result.exit_code == 0, result.output
    values = json.loads((tmp_path / "a.json").read_text())
    expected = model.speech.transcribe(tmp_path / "a.wav", language="de")
    assert values["text"] == expected.text
    assert (tmp_path / "a.srt").read_text() == subrip(expected.segments)
    assert (tmp_path / "a.vtt").read_text() == webvtt(expected.segments)


def test_a_missing_sound_is_refused_before_the_model_is_read(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["transcribe", str(tmp_path / "a.wav"), "-m", str(tmp_path / "missing.gguf")])
    assert result.exit_code == 2
    assert "a.wav' does not exist" in result.output


def test_other_models_do_not_transcribe(tmp_path: Path) -> None:
    with (
        pumice.load(pumice.demo_model_path(), backend="numpy") as other,
        pytest.raises(RequestError, match="does not transcribe"),
    ):
        other.speech.transcribe(tmp_path / "a.wav")
