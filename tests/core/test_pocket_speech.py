"""Pocket TTS beside its authors' package: samples, voices, pieces of texts; and speech as parts."""

import asyncio
import json

import numpy as np
import pytest
from click.testing import CliRunner

import pocket_models as tiny
import pumice
from pocket_models import write_converted, write_pocket
from pumice.audio import VOICE_RATE
from pumice.cli import cli
from pumice.errors import RequestError
from pumice.frontend.speaking import TokenizerVocabulary
from pumice_architectures.speaking import pocket
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
        sound = model.speak(tiny.TEXT, temperature=0.0, voice=voice, max_seconds=30 * FRAME / VOICE_RATE)
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
        sound = model.speak(tiny.TEXT, temperature=0.0, voice=VOICE)
    np.testing.assert_allclose(sampled(sound.source), theirs("ends, voice"), atol=2e-5)


def test_rows_of_a_voice_are_those_of_the_package(model):
    model.check_speaks()
    speaker = model._load_speaker()
    rows = speaker.model.voice(speaker._graphs, tiny.voice())
    np.testing.assert_allclose(rows, theirs("voice rows"), atol=1e-5)


def test_pieces_are_those_of_the_package(model):
    expected = json.loads(str(theirs("pieces")))
    speaks = model._registry.speech_models.find("pockettts_gen")
    begin = TokenizerVocabulary(model.tokenizer).find("<|audio_bos|>")
    for text, pieces in zip(expected["texts"], expected["pieces"], strict=True):
        ours = speaks.pieces(text, TokenizerVocabulary(model.tokenizer))
        assert [[piece.text, piece.tokens] for piece in ours] == [[said, [*ids, begin]] for said, ids in pieces]


def test_a_speech_comes_in_parts_and_is_the_same_in_another_process(models):
    path = models / "ends" / "model.gguf"
    with pumice.load(path, **OPTIONS) as model:
        told = []
        whole = model.speak("hello there. " * 5, seed=5, voice=VOICE, progress=told.append)
        again = model.speak("hello there. " * 5, seed=5, voice=VOICE)
        other = model.speak("hello there. " * 5, seed=6, voice=VOICE)
    assert len(told) > 1
    np.testing.assert_array_equal(whole.source, again.source)
    assert np.abs(whole.source - other.source[: len(whole.source)]).max() > 1e-3
    with pumice.load_process(path, **OPTIONS) as model:
        assert (model.facts.speech, model.facts.samples_per_code) == ("pockettts_gen", FRAME)
        parts = list(model.speak_stream("hello there. " * 5, seed=5, voice=VOICE))
        np.testing.assert_array_equal(np.concatenate(parts), whole.source)

        async def first():
            stream = model.aspeak_stream("hello there. " * 5, seed=5, voice=VOICE)
            part = await anext(stream)
            await stream.aclose()
            return part

        np.testing.assert_array_equal(asyncio.run(first()), parts[0])
        assert len(model.speak("hello", max_seconds=0.01).source) == 240
        with pytest.raises(RequestError, match=r"takes no sound: .* no (such )?encoder"):
            model.generate([VOICE, "a"], max_tokens=1)


def test_a_speech_ends_with_its_reader(models):
    with pumice.load_process(models / "never ends" / "model.gguf", **OPTIONS) as model:
        for _ in range(2):
            stream = model.speak_stream("hello there. " * 30)
            assert len(next(stream)) == 2 * FRAME
            stream.close()
        assert len(model.speak("hello", max_seconds=0.5).source) == VOICE_RATE // 2


def test_a_model_that_never_ends_is_ended(models, monkeypatch):
    with pumice.load(models / "never ends" / "model.gguf", **OPTIONS) as model:
        speaks = model._registry.speech_models.find("pockettts_gen")
        (piece,) = speaks.pieces("hello", TokenizerVocabulary(model.tokenizer))
        assert piece.max_frames == int(np.ceil(((len(piece.tokens) - 1) / 3 + 2) * 12.5))
        monkeypatch.setattr(pocket, "MOST_FRAMES", 12)
        assert len(model.speak("hello").source) == 12 * FRAME


@pytest.mark.parametrize(
    ("text", "problem"),
    [("", "no words"), ("?!…", "no words"), ("a" * 4097, "4097 characters; at most 4096"), (7, "must be a string")],
)
def test_wrong_texts_are_named(model, text, problem):
    with pytest.raises(RequestError, match=problem):
        model.speak(text)


def test_long_texts_without_marks_are_spoken_in_pieces(model):
    speaks = model._registry.speech_models.find("pockettts_gen")
    for text in ("a" * 4096, "word " * 800, "1.5" * 1300):
        pieces = speaks.pieces(text, TokenizerVocabulary(model.tokenizer))
        assert max(len(piece.tokens) for piece in pieces) < 500
        assert sum(len(piece.text) for piece in pieces) >= 3900


@pytest.mark.parametrize(
    ("options", "problem"),
    [
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
        model.speak("hello", **options)


def test_short_and_long_voices_are_heard(model):
    for n in (1, 479, 480, 1920, 31 * VOICE_RATE):
        sound = model.speak("hello", voice=pumice.Audio(np.resize(tiny.voice(), n), VOICE_RATE), max_seconds=0.1)
        assert len(sound.source) == 2400


def test_voices_of_other_rates_are_resampled(model, tmp_path):
    pytest.importorskip("soundfile")
    pytest.importorskip("soxr")
    VOICE.save(tmp_path / "voice.wav")
    sound = model.speak("hello", voice=tmp_path / "voice.wav", temperature=0.0, max_seconds=0.5)
    expected = model.speak("hello", voice=VOICE, temperature=0.0, max_seconds=0.5)
    np.testing.assert_allclose(sound.source, expected.source, atol=1e-3)
    slow = pumice.Audio(tiny.voice()[::3], 8000)
    assert len(model.speak("hello", voice=slow, max_seconds=0.5).source) == VOICE_RATE // 2


def test_files_without_parts_are_refused(models, tmp_path):
    for name in ("model.gguf", "mmproj.gguf"):
        (tmp_path / name).write_bytes((models / "ends" / name).read_bytes())
    off = {**OPTIONS, "mmproj": "off"}
    with pumice.load(tmp_path / "model.gguf", **off) as model, pytest.raises(RequestError, match="does not speak"):
        model.speak("hello")
    data = (tmp_path / "mmproj.gguf").read_bytes()
    (tmp_path / "mmproj.gguf").write_bytes(data.replace(b"pockettts_gen", b"pockettts_ger"))
    unknown = pytest.raises(pumice.PumiceError, match="pockettts_ger")
    with pumice.load(tmp_path / "model.gguf", **OPTIONS) as model, unknown:
        model.speak("hello")
