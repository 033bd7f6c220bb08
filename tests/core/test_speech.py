"""Speech: prompts beside those of the package outetts, samples, voices, files of sound, and models that speak."""

import asyncio
import json

import numpy as np
import pytest

import pumice
from hearing_models import sound
from pumice.config import load_config
from pumice.errors import RequestError
from pumice.frontend import speech as speaking
from pumice.hub.projectors import find_vocoder
from pumice.media.audio import decode
from pumice.media.sound_files import FORMATS, SoundWriter, encode_file
from pumice.model_files.policy import files_beside
from pumice.speech.outetts import MOST_WORDS, OuteTTS
from pumice.speech.voice import Voice
from pumice.speech.waveform import RATE, samples_per_frame, waveform
from speaking_models import FIXTURE, HOP, N_CODES, TEXTS, VOICE, frames, vocabulary, write_speaking

THEIRS = json.loads(FIXTURE.read_text())
VOICE_FILE = json.dumps(VOICE).encode()


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_speaking(tmp_path_factory.mktemp("speaks"))


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Let the tiny models, which never end, speak 60 codes a word."""
    monkeypatch.setattr(speaking, "_CODES_PER_WORD", 60)
    monkeypatch.setattr(speaking, "_CODES_AROUND", 0)


@pytest.mark.parametrize("number", range(len(TEXTS)))
@pytest.mark.parametrize("version", ["0.2", "0.3"])
def test_prompts_are_those_of_the_package(version, number):
    speaker = OuteTTS.of(vocabulary(version))
    assert speaker.name == f"OuteTTS {version}"
    prompts = [speaker.prompt(TEXTS[number], voice) for voice in (None, Voice.parse(VOICE_FILE, "a"))]
    assert prompts == THEIRS["prompts"][version][number]


def test_samples_are_those_of_the_package():
    ours, theirs = waveform(frames()), np.array(THEIRS["samples"])
    assert np.abs(theirs).max() > 1  # which is cut
    np.testing.assert_allclose(ours, np.clip(theirs, -1, 1), atol=1e-6)
    assert [samples_per_frame(width) for width in (1282, 18, 20, 2, 0)] == [320, 4, 0, 0, 0]


def test_long_texts_are_spoken_in_pieces():
    speaker = OuteTTS.of(vocabulary("0.2"))
    assert speaker.pieces("One. Two! Three") == ["One. Two! Three"]
    sentence = "word " * 19 + "word."
    assert speaker.pieces(f"{sentence} {sentence}\n\n{sentence}") == [sentence] * 3
    assert [len(piece.split()) for piece in speaker.pieces("word " * 70)] == [MOST_WORDS, MOST_WORDS, 10]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a" * 4097, "4097 characters; at most 4096"),
        ("你好", "the text has '你'; OuteTTS reads texts in Latin letters"),
        ("", "no words"),
        ("... !", "no words"),
        (5, "must be a string, not 5"),
    ],
)
def test_wrong_texts_are_named(path, text, problem):
    with pumice.load(path, backend="numpy", vocoder="off") as model, pytest.raises(RequestError, match=problem):
        model.speech.speak(text)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "not a voice of OuteTTS"),
        (b"[" * 10**5, "not a voice of OuteTTS"),
        (json.dumps({**VOICE, "words": []}).encode(), "not a voice of OuteTTS: .*words"),
        (VOICE_FILE.replace(b"[0, 1]", b"[4096]"), "<= 4095"),
        (VOICE_FILE.replace(b"[0, 1]", b"[-1]"), ">= 0"),
        (VOICE_FILE.replace(b"[0, 1]", b"[]"), "not a voice"),
        (VOICE_FILE.replace(b"[0, 1]", json.dumps([1] * 4095).encode()), "more than 4096 audio codes"),
        (VOICE_FILE.replace(b"0.1", b"1e999"), "not a voice"),
    ],
)
def test_wrong_voices_are_named(data, problem):
    with pytest.raises(RequestError, match=f"voice: a.json: .*{problem}"):
        Voice.parse(data, "a.json")


@pytest.mark.parametrize("format", FORMATS)
def test_files_of_every_format_are_the_same_sound_streamed_or_whole(format):
    if format not in ("wav", "pcm"):
        pytest.importorskip("soundfile")
    samples = sound(3.0, RATE)
    writer = SoundWriter(format, RATE)
    streamed = b"".join([*(writer.write(samples[i : i + RATE]) for i in range(0, len(samples), RATE)), writer.end()])
    whole = encode_file(samples, RATE, format)
    if format == "pcm":
        assert streamed == whole == np.rint(samples * 32767).astype("<i2").tobytes()
        return
    expected = pumice.Audio(samples, RATE).samples()
    for data in (streamed, whole):
        heard = np.frombuffer(decode(data), np.float32)
        assert abs(len(heard) - len(expected)) <= 2000  # MP3 adds a frame, and a stream cannot say so
        lag = np.correlate(heard[: len(expected)], expected[2000:12000]).argmax() - 2000
        assert 0 <= lag < 2000
        near = heard[2000 + lag : 40000 + lag], expected[2000:40000]
        assert np.corrcoef(*near)[0, 1] > 0.97


def test_a_model_speaks_in_this_process_and_another(path):
    told = []
    with pumice.load(path, backend="numpy") as model:
        spoken = model.speech.speak("Hello world. " + "So be it! " * 12, seed=3, progress=told.append)
        assert spoken.source.shape[0] % HOP == 0
        assert len(told) == 2
        assert told[-1] == len(spoken.source) / RATE
        assert np.abs(spoken.source).max() > 0.1
        again = model.speech.speak("Hello world.", seed=3, voice=Voice.parse(VOICE_FILE, "a"))
        assert len(again.source) == 2 * 60 * HOP
        cut = model.speech.speak("Hello world.", seed=3, max_seconds=0.01)
        assert len(cut.source) == 240
        most = [model.speech.pieces("So be it! " * 12, max_seconds=n)[0].options["max_tokens"] for n in (0.01, 600)]
        assert 60 < most[0] < most[1]
    with pumice.load_process(path, backend="numpy") as model:
        assert (model.facts.audio_codes, model.facts.samples_per_code) == (N_CODES, HOP)
        parts = list(model.speech.stream("Hello world. " + "So be it! " * 12, seed=3))
        np.testing.assert_array_equal(np.concatenate(parts), spoken.source)

        async def speak():
            return [part async for part in model.speech.astream("Hello world.", seed=3)]

        assert [len(part) for part in asyncio.run(speak())] == [2 * 60 * HOP]
        with pytest.raises(RequestError, match=f"none of the vocoder's {N_CODES}"):
            model.engine.speech.decode([N_CODES])
        decoding = [model.engine.speech.decode([1] * 300) for _ in range(3)]
        decoding[2].cancel()
        assert len(decoding[0].result()) == 300 * HOP


def test_models_that_do_not_speak_say_so(path, tmp_path):
    with pumice.load(backend="numpy") as model, pytest.raises(RequestError, match="this model does not speak"):
        model.speech.speak("Hello.")
    for load in (pumice.load, pumice.load_process):
        with load(path, backend="numpy", vocoder="off") as model, pytest.raises(RequestError, match="has no vocoder"):
            model.speech.speak("Hello.")
    with pytest.raises(pumice.ModelError, match="not a vocoder: its architecture is not wavtokenizer-dec"):
        pumice.load_process(path, backend="numpy", vocoder=str(path))


def test_vocoders_are_found_beside_the_model(path, tmp_path):
    vocoder = path.parent / "WavTokenizer-tiny-F32.gguf"
    assert find_vocoder(path) == vocoder
    assert find_vocoder(path, "off") is None
    assert str(find_vocoder(path, "other.gguf")) == "other.gguf"
    assert vocoder in files_beside(load_config(), [path])  # a confined engine may read it
