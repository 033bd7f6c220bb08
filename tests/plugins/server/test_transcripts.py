"""Whisper behind OpenAI's transcriptions and translations, as the official client sends them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pumice
from hearing_models import RATE, sound
from hostile_sounds import pcm, wav
from imported_late import Late
from pumice.convert import ConvertOptions, write_model
from pumice.gguf import GGMLType
from pumice.media.subtitles import subrip, webvtt
from pumice.model_files.opening import open_model
from pumice.plugin.unstable import ModelSpec
from server_thread import Serving, running, serving
from whisper_models import write_folder

openai = Late("openai")

pytest.importorskip("soundfile")
pytest.importorskip("soxr")
SAMPLES = sound(33)
WAV = wav(pcm(SAMPLES))
OPTIONS = {"backend": "numpy"}
NAMED = {"model": "whisper", "file": ("a.wav", WAV)}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_folder(tmp_path_factory.mktemp("whisper") / "tiny")
    with open_model(folder, options=ConvertOptions(GGMLType.F32)) as file:
        write_model(file, folder / "tiny.gguf")
    return folder / "tiny.gguf"


@pytest.fixture(scope="module")
def server(path: Path) -> Iterator[Serving]:
    with serving(ModelSpec(["whisper"], str(path), OPTIONS)) as server:
        yield server


def test_no_chat_template_is_missed(path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: Any) -> None:
    monkeypatch.setattr(logging.getLogger("pumice"), "propagate", True)
    with pumice.load(path, **OPTIONS) as model, running(model):
        assert "chat template" not in caplog.text


def test_every_form_has_the_transcript_of_the_model(client: openai.OpenAI, path: Path) -> None:
    with pumice.load(path, **OPTIONS) as model:
        expected = model.speech.transcribe(pumice.Audio(WAV), language="de", temperature=1.0)
        text = expected.text
    assert text
    ask = client.audio.transcriptions.create
    given = NAMED | {"language": "de", "temperature": 1.0}
    made = ask(**given)
    assert made.text == text
    assert (made.usage.type, made.usage.seconds) == ("duration", len(SAMPLES) / RATE)
    assert ask(**given, response_format="text").strip() == text
    assert ask(**given, response_format="srt") == subrip(expected.segments)
    assert ask(**given, response_format="vtt") == webvtt(expected.segments)
    verbose = ask(**given, response_format="verbose_json", timestamp_granularities=["segment"])
    assert (verbose.language, verbose.duration, verbose.text) == ("german", len(SAMPLES) / RATE, text)
    for sent, segment in zip(verbose.segments, expected.segments, strict=True):
        for name in ("start", "end", "text", "tokens", "avg_logprob", "no_speech_prob"):
            assert getattr(sent, name) == getattr(segment, name)
        assert sent.seek == round(100 * segment.seek)
    *deltas, done = ask(**given, stream=True)
    assert done.text == text == "".join(part.delta for part in deltas).strip()
    assert len(deltas) == len(expected.segments)


def test_words_and_chunks(client: openai.OpenAI, path: Path) -> None:
    with pumice.load(path, **OPTIONS) as model:
        options = {"language": "de", "temperature": 1.0}
        expected = list(model.speech.transcribe(pumice.Audio(WAV), timestamps="word", **options))
        chunks = model.speech.transcribe(pumice.Audio(WAV), vad="energy", batch_size=8, hotwords="abc", **options).text
    ask = client.audio.transcriptions.create
    given = NAMED | {"language": "de", "temperature": 1.0}
    for granularities in (["word"], ["segment", "word"]):
        made = ask(**given, response_format="verbose_json", timestamp_granularities=granularities)
        words = [(word.start, word.end, word.word) for segment in expected for word in segment.words]
        assert [(word.start, word.end, word.word) for word in made.words] == [(*w[:2], w[2].strip()) for w in words]
        assert (made.segments is None) == ("segment" not in granularities)
    asked = {"chunking_strategy": "auto", "hotwords": "abc"}
    assert ask(**given, extra_body=asked).text == chunks


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"language": "klingon"}, "no language of the model"),
        ({"extra_body": {"max_tokens": 5}}, "max_tokens"),
        ({"extra_body": {"chunking_strategy": "never"}}, "chunking_strategy"),
        ({"file": ("a.wav", b"no sound")}, "audio"),
    ],
)
def test_wrong_requests_are_named(client: openai.OpenAI, fields: dict[str, object], problem: str) -> None:
    with pytest.raises(openai.BadRequestError, match=problem):
        client.audio.transcriptions.create(**NAMED | fields)


def test_a_client_that_leaves_ends_the_decoding(server: Serving, client: openai.OpenAI) -> None:
    hasty = client.with_options(timeout=openai.Timeout(60, read=0.001))
    with pytest.raises(openai.APITimeoutError):
        hasty.audio.transcriptions.create(**NAMED, temperature=1.0)
    assert server.client.get("/health").status_code == 200
    answer = server.client.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "Hello"}]})
    assert answer.status_code == 400
    assert "sound" in answer.json()["error"]["message"]


def test_the_list_of_models_says_that_one_hears_before_it_is_loaded(path: Path) -> None:
    with serving(*(ModelSpec([name], str(path), OPTIONS) for name in ("first", "second"))) as server:
        listed = server.client.get("/v1/models").json()
        shown = server.client.post("/api/show", json={"model": "first"}).json()
    assert [model["status"]["value"] for model in listed["data"]] == ["unloaded", "unloaded"]
    assert [model["capabilities"] for model in [*listed["models"], shown]] == [["audio"]] * 3
