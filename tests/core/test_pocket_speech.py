"""Pocket TTS beside its authors' package: samples, voices, pieces of texts; and speech as parts."""

import asyncio
import json

import numpy as np
import pytest
from click.testing import CliRunner

import pocket_models as tiny
import pumice
from pocket_models import write_converted, write_pocket
from pumice.cli import cli
from pumice.errors import RequestError
from pumice.media.audio import VOICE_RATE
from vision_models import described

FRAME = 1920
OPTIONS = {"backend": "numpy", "kv_type": "f32"}  # as exact as the package
VOICE = pumice.Audio(tiny.voice(), VOICE_RATE)


def theirs(name):
    with np.load(tiny.FIXTURE) as file:
        return file[name]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Convert two models: one whose speech ends at once, and one whose speech never ends."""
    folder = tmp_path_factory.mktemp("pocket")
    for name, bias in (("ends", 40.0), ("never ends", -40.0)):
        write_converted(folder / name, bias)
    return folder


@pytest.fixture
def model(models):
    with pumice.load(models / "ends" / "model.gguf", **OPTIONS) as model:
        yield model


def sampled(samples):
    return np.concatenate([samples[:3000], samples[3000 : 30 * FRAME : 37]])


@pytest.mark.parametrize("name", ["ends", "never ends"])
@pytest.mark.parametrize("kind", ["plain", "voice"])
def test_samples_are_those_of_the_package(models, name, kind):
    voice = VOICE if kind == "voice" else None
    length = min(int(theirs(f"{name}, {kind}, length")), 30 * FRAME)
    with pumice.load(models / name / "model.gguf", **OPTIONS) as model:
        sound = model.speech.speak(tiny.TEXT, temperature=0.0, voice=voice, max_seconds=30 * FRAME / VOICE_RATE)
    assert len(sound.source) == length
    expected = theirs(f"{name}, {kind}")
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(sampled(sound.source), expected, atol=5e-6)


def test_the_speech_model_is_converted_as_by_llama_cpp(models, tmp_path):
    checkpoint, out = write_pocket(tmp_path / "english"), tmp_path / "mmproj.gguf"
    CliRunner().invoke(cli, ["convert", str(checkpoint), "--mmproj", "--type", "f32", "-o", str(out)])
    assert described(out) == json.loads(str(theirs("converted")))


def test_other_backends_make_the_same_sound(models):
    with pumice.load(models / "ends" / "model.gguf", backend="cpu", kv_type="f32") as model:
        sound = model.speech.speak(tiny.TEXT, temperature=0.0, voice=VOICE)
    np.testing.assert_allclose(sampled(sound.source), theirs("ends, voice"), atol=2e-5)


def test_a_speech_comes_in_parts_and_is_the_same_in_another_process(models):
    path = models / "ends" / "model.gguf"
    with pumice.load(path, **OPTIONS) as model:
        told = []
        whole = model.speech.speak("hello there. " * 5, seed=5, voice=VOICE, progress=told.append)
        again = model.speech.speak("hello there. " * 5, seed=5, voice=VOICE)
        other = model.speech.speak("hello there. " * 5, seed=6, voice=VOICE)
    assert len(told) > 1
    np.testing.assert_array_equal(whole.source, again.source)
    assert np.abs(whole.source - other.source[: len(whole.source)]).max() > 1e-3
    with pumice.load_process(path, **OPTIONS) as model:
        assert (model.facts.speech, model.facts.samples_per_code) == ("pockettts_gen", FRAME)
        parts = list(model.speech.stream("hello there. " * 5, seed=5, voice=VOICE))
        np.testing.assert_array_equal(np.concatenate(parts), whole.source)

        async def first():
            stream = model.speech.astream("hello there. " * 5, seed=5, voice=VOICE)
            part = await anext(stream)
            await stream.aclose()
            return part

        np.testing.assert_array_equal(asyncio.run(first()), parts[0])
        assert len(model.speech.speak("hello", max_seconds=0.01, timeout=600.0).source) == 240
        with pytest.raises(pumice.RequestTimeoutError):
            model.speech.speak("hello", timeout=0.0)
        with pytest.raises(RequestError, match=r"takes no sound: .* no (such )?encoder"):
            model.generate([VOICE, "a"], max_tokens=1)


def test_speeches_count_in_the_queue(models):
    with pumice.load(models / "never ends" / "model.gguf", n_parallel=1, max_queue=0, **OPTIONS) as model:
        stream = model.speech.stream("hello there. " * 30)
        next(stream)
        assert model.engine.snapshot().n_reading == 1
        with pytest.raises(pumice.QueueFullError):
            next(model.speech.stream("hello"))
        stream.close()


def test_a_speech_ends_with_its_reader(models):
    with pumice.load_process(models / "never ends" / "model.gguf", **OPTIONS) as model:
        for _ in range(2):
            stream = model.speech.stream("hello there. " * 30)
            assert len(next(stream)) == 2 * FRAME
            stream.close()
        assert len(model.speech.speak("hello", max_seconds=0.5).source) == VOICE_RATE // 2


def test_no_more_frames_are_computed_than_are_heard(models):
    with pumice.load(models / "never ends" / "model.gguf", **OPTIONS) as model:
        whole = model.speech.speak("hello", temperature=0.0, max_seconds=1.0).source
        before = model.engine.snapshot().n_steps
        cut = model.speech.speak("hello", temperature=0.0, max_seconds=0.3).source
        assert model.engine.snapshot().n_steps - before <= 0.3 * VOICE_RATE / FRAME + 2
    np.testing.assert_allclose(cut, whole[: len(cut)], atol=1e-6)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"text": ""}, "no words"),
        ({"text": "?!…"}, "no words"),
        ({"temperature": -1}, "temperature must be a number from 0 to 2"),
        ({"temperature": float("nan")}, "temperature must be"),
        ({"seed": -1}, "seed must be a whole number"),
        ({"voice": 5}, "voice must be a file of sound or a pumice.Audio"),
        ({"voice": "absent.wav"}, "absent.wav"),
        ({"voice": pumice.Audio(np.full(100, np.nan, np.float32), 24000)}, "not a finite number"),
        ({"voice": pumice.Audio(np.zeros(0, np.float32), 24000)}, "no samples"),
        ({"voice": pumice.Audio(b"no sound")}, "no sound"),
    ],
)
def test_wrong_options_are_named(model, options, problem):
    with pytest.raises(RequestError, match=problem):
        model.speech.speak(**{"text": "hello", **options})
