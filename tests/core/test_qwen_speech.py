"""Qwen3-TTS beside its authors' package: codes, samples, rows of voices; and what cannot be spoken."""

import json
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

import pumice
import qwen_speech_models as tiny
from gguf_files import write_gguf
from pumice.cli import cli
from pumice.engine.messages import Speak
from pumice.errors import ModelError, RequestError
from pumice.frontend.speech import TokenizerVocabulary
from pumice.gguf import GGUFFile
from pumice.media.audio import VOICE_RATE, voice_samples
from pumice.model_files.opening import check_projector
from vision_models import described

FRAME = 1920
OPTIONS = {"backend": "numpy", "kv_type": "f32"}  # as exact as the package
VOICE = pumice.Audio(tiny.voice(), VOICE_RATE)
KINDS = {"plain": {}, **{k: {"voice": v, "language": "english"} for k, v in (("voice", VOICE), ("named", "Serena"))}}


def theirs(name):
    with np.load(tiny.FIXTURE) as file:
        return file[name]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tiny.write_converted(tmp_path_factory.mktemp("qwen"))


@pytest.fixture(scope="module")
def model(path):
    with pumice.load(path, **OPTIONS) as model:
        yield model


def sampled(samples):
    return np.concatenate([samples[:3000], samples[3000::37]])


def spoken(model, kind):
    """Speak as many frames as the package did, if the model does not end earlier."""
    n = len(theirs(f"{kind}, codes")) + (kind == "plain")
    return model.speech.speak(tiny.TEXT, temperature=0.0, max_seconds=n * FRAME / VOICE_RATE, **KINDS[kind])


@pytest.mark.parametrize("kind", KINDS)
def test_samples_are_those_of_the_package(model, kind):
    sound = spoken(model, kind).source
    assert len(sound) == len(theirs(f"{kind}, codes")) * FRAME  # the first one ends by itself
    expected = theirs(kind)
    assert 0.3 < np.abs(expected).max() < 1
    np.testing.assert_allclose(sampled(sound), expected, atol=5e-6)


def test_codes_are_those_of_the_package(model):
    for kind, options in KINDS.items():
        expected = theirs(f"{kind}, codes")
        voice = options.get("voice")
        name = voice if isinstance(voice, str) else ""
        frames = frames_of(model, len(expected), None if name else voice, options.get("language", ""), name)
        np.testing.assert_array_equal(np.array(frames, np.int32), expected)


def frames_of(model, n, voice, language, name="", **changes):
    """Return the frames of the text, before any sound is made of them."""
    model.engine.speech.check()
    speaks = model.engine.speech.speaker()
    (text,) = speaks.model.pieces(tiny.TEXT, TokenizerVocabulary(model.tokenizer), language, name)
    heard = b"" if voice is None else voice_samples(voice).tobytes()
    command = Speak(0, replace(text, max_frames=n, **changes), 0.0, 0, heard)
    frames = []
    model.engine.thread.read(lambda request: speaks._ask(request, command, frames.append))
    return frames


@pytest.mark.parametrize("changes", [{"codes": [1 << 30] * 12}, {"codes": [-2] * 12}, {"codes": []}, {"end": 5000}])
def test_codes_that_do_not_fit_are_refused(model, changes):
    with pytest.raises(RequestError, match="codes of the prompt do not fit"):
        frames_of(model, 1, None, "", **changes)


def test_damaged_files_are_refused(path, tmp_path):
    with GGUFFile.open(path.parent / "mmproj.gguf") as file:
        metadata = dict(file.metadata)
        tensors = {name: tensor.dequantize().copy() for name, tensor in file.tensors.items()}
    name = "a.gen.wav.quant.first.codebook.weight"
    few = write_gguf(tmp_path / "few.gguf", metadata, {**tensors, name: tensors[name][:9]})
    with GGUFFile.open(few) as file, pytest.raises(ModelError, match=name):
        check_projector(file)
    name = "a.gen.code.head.weight"
    wrong = write_gguf(tmp_path / "wrong.gguf", metadata, {**tensors, name: np.full_like(tensors[name], np.nan)})
    unfinished = pytest.raises(RequestError, match="not a finite number")
    with pumice.load(path, mmproj=str(wrong), **OPTIONS) as model, unfinished:
        model.speech.speak("hello")


def test_the_speech_model_is_converted_as_by_llama_cpp(tmp_path):
    checkpoint, out = tiny.write_qwen(tmp_path / "qwen"), tmp_path / "mmproj.gguf"
    CliRunner().invoke(cli, ["convert", str(checkpoint), "--mmproj", "--type", "f32", "-o", str(out)])
    ours, expected = described(out), json.loads(str(theirs("converted")))
    for tensors in (ours["tensors"], expected["tensors"]):  # exponential functions differ in the last bit
        for name in tensors:
            if name.endswith((".alpha", ".beta")):
                tensors[name] = tensors[name][:2]
    assert ours == expected


def test_other_backends_make_the_same_sound(path):
    with pumice.load(path, backend="cpu", kv_type="f32") as model:
        np.testing.assert_allclose(sampled(spoken(model, "plain").source), theirs("plain"), atol=1e-4)


def test_speech_is_the_same_in_another_process(path, model):
    with pumice.load_process(path, **OPTIONS) as process:
        assert (process.facts.speech, process.facts.samples_per_code) == ("qwen3tts_gen", FRAME)
        there = process.speech.speak("hello", seed=4, max_seconds=0.4)
    here = model.speech.speak("hello", seed=4, max_seconds=0.4)
    other = model.speech.speak("hello", seed=5, max_seconds=0.4)
    np.testing.assert_array_equal(there.source, here.source)
    assert np.abs(here.source - other.source).max() > 1e-3


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"language": "klingon"}, "does not know 'klingon'"),
        ({"language": 5}, "language must be a string"),
        ({"voice": pumice.Audio(np.zeros(100, np.float32), VOICE_RATE)}, "but the model needs at least 1024"),
        ({"text": "?!"}, "no words"),
        ({"text": "a" * 4097}, "at most 4096"),
    ],
)
def test_wrong_options_are_named(model, options, problem):
    with pytest.raises(RequestError, match=problem):
        model.speech.speak(**{"text": "hello", **options})


def test_the_command_speaks_with_a_language(path, tmp_path):
    out = tmp_path / "sound.pcm"
    arguments = ["speak", "hello", str(path), "-o", str(out), "--language", "English", "--max-seconds", "0.2"]
    unknown = CliRunner().invoke(cli, [*arguments, "--backend", "numpy", "--speaker", "anna"])
    assert "this model has no voice 'anna'" in unknown.output
    result = CliRunner().invoke(cli, [*arguments, "--backend", "numpy", "--speaker", "serena"])
    assert not result.exit_code, result.output
    assert len(out.read_bytes()) == 2 * 4800
