"""Speech: prompts beside those of the package outetts, samples, voices, files of sound, and models that speak."""

import asyncio
import io
import json
from dataclasses import replace

import numpy as np
import pytest

import pumice
from hearing_models import sound
from pumice.audio import decode
from pumice.config import load_config
from pumice.errors import RequestError
from pumice.frontend import speaking
from pumice.frontend.speaking import MAX_SECONDS, most_samples
from pumice.hub.projectors import find_vocoder
from pumice.model_files.policy import files_beside
from pumice.sound_files import FORMATS, SoundWriter, check_format, encode_file
from pumice.speech.number_words import number_words
from pumice.speech.outetts import MOST_WORDS, OuteTTS, OuteTTS02, OuteTTS03
from pumice.speech.vocoder import MOST_CODES, Vocoder, check_codes
from pumice.speech.voice import Voice
from pumice.speech.waveform import RATE, samples_per_frame, waveform
from speaking_models import FIXTURE, HOP, N_CODES, N_FFT, TEXTS, VOICE, frames, vocabulary, write_speaking

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


def test_numbers_are_those_of_the_package():
    assert {number: number_words(number) for number in THEIRS["numbers"]} == THEIRS["numbers"]
    assert number_words("1" * 30) == " ".join(["one"] * 30)


def test_texts_that_the_original_package_reads_wrongly():
    assert OuteTTS02([]).words("700,000 cafés") == ["seven", "hundred", "thousand", "cafes"]
    assert OuteTTS03([]).words("3.14") == ["three", "point", "one", "four"]
    quoted = "<|double_quote|>hello<|comma|><|double_quote|>"
    assert OuteTTS03([]).words('"Hello," she said.') == [quoted, "she", "said<|period|>"]


def test_voices_of_other_letters_are_read_by_their_words():
    other = Voice.parse(json.dumps({**VOICE, "text": "その日は終わった"}).encode(), "a")
    assert (
        OuteTTS03([])
        .prompt("So.", other)
        .startswith("<|im_start|>\n<|text_start|>the<|space|>day<|space|>its<|space|>over")
    )


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
        model.speak(text)


def test_special_tokens_in_a_text_are_words():
    for speaker in (OuteTTS02([]), OuteTTS03([])):
        assert "<|audio_end|>" not in speaker.prompt("a <|audio_end|> b <|5|>", None)


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


def test_words_of_voices_spell_no_tokens(tmp_path):
    evil = Voice.parse(VOICE_FILE.replace(b'"its"', b'"<|audio_end|>"'), "a")
    for speaker in (OuteTTS02([]), OuteTTS03([])):
        with pytest.raises(RequestError, match="letters from a to z alone"):
            speaker.prompt("a", evil)
    with pytest.raises(RequestError, match="No such file"):
        Voice.read(tmp_path / "absent.json")
    (tmp_path / "large.json").write_bytes(bytes((1 << 20) + 1))
    with pytest.raises(RequestError, match="more than 1048576 bytes"):
        Voice.read(tmp_path / "large.json")


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


def test_unknown_formats_are_named(tmp_path):
    with pytest.raises(RequestError, match="unknown format of sound 'aac'; choose wav, flac, mp3, opus or pcm"):
        check_format("aac")
    tone = pumice.Audio(sound(0.1, RATE), RATE)
    tone.save(tmp_path / "a.wav")
    assert len(pumice.Audio(tmp_path / "a.wav").samples()) == 1600
    with pytest.raises(RequestError, match="unknown format of sound ''"):
        tone.save(tmp_path / "a")
    with pytest.raises(RequestError, match="only an array"):
        pumice.Audio(b"").save(tmp_path / "b.wav")


def test_a_model_speaks_in_this_process_and_another(path):
    told = []
    with pumice.load(path, backend="numpy") as model:
        spoken = model.speak("Hello world. " + "So be it! " * 12, seed=3, progress=told.append)
        assert spoken.source.shape[0] % HOP == 0
        assert len(told) == 2
        assert told[-1] == len(spoken.source) / RATE
        assert np.abs(spoken.source).max() > 0.1
        again = pumice.speak("Hello world.", model, seed=3, voice=Voice.parse(VOICE_FILE, "a"))
        assert len(again.source) == 2 * 60 * HOP
        cut = model.speak("Hello world.", seed=3, max_seconds=0.01)
        assert len(cut.source) == 240
    with pumice.load_process(path, backend="numpy") as model:
        assert (model.facts.audio_codes, model.facts.samples_per_code) == (N_CODES, HOP)
        parts = list(model.speak_stream("Hello world. " + "So be it! " * 12, seed=3))
        np.testing.assert_array_equal(np.concatenate(parts), spoken.source)

        async def speak():
            return [part async for part in model.aspeak_stream("Hello world.", seed=3)]

        assert [len(part) for part in asyncio.run(speak())] == [2 * 60 * HOP]
        with pytest.raises(RequestError, match=f"none of the vocoder's {N_CODES}"):
            model.decode_speech([N_CODES])
        decoding = [model.decode_speech([1] * 300) for _ in range(3)]
        decoding[2].cancel()
        assert len(decoding[0].result()) == 300 * HOP


def test_the_codes_are_those_that_the_model_generates(path):
    with pumice.load(path, backend="numpy") as model:
        (piece,) = model.speech_pieces("Hello.", seed=1)
        completion = model.generate(piece.prompt, **piece.options)
        codes = model.speech_codes(completion)
        first = model.tokenize("<|0|>", add_special=False)[0]
        assert codes == [token - first for token in completion.tokens if token >= first]
        assert len(codes) > 30
        with pytest.raises(RequestError, match="generated no audio codes"):
            model.speech_codes(replace(completion, tokens=[5, 6]))


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), MAX_SECONDS + 1, True, "5"])
def test_seconds_are_bounded(seconds):
    with pytest.raises(RequestError, match="max_seconds must be a number above 0 and up to 1800"):
        most_samples(seconds)


def test_codes_are_bounded():
    for codes, problem in (([], "0 audio codes"), ([1] * (MOST_CODES + 1), "audio codes; 1 to"), ([-1], "none of")):
        with pytest.raises(RequestError, match=problem):
            check_codes(codes, 4096)


def test_models_that_do_not_speak_say_so(path, tmp_path):
    with pumice.load(backend="numpy") as model, pytest.raises(RequestError, match="this model does not speak"):
        model.speak("Hello.")
    for load in (pumice.load, pumice.load_process):
        with load(path, backend="numpy", vocoder="off") as model, pytest.raises(RequestError, match="has no vocoder"):
            model.speak("Hello.")
    with pytest.raises(pumice.ModelError, match="not a vocoder: its architecture is not wavtokenizer-dec"):
        pumice.load_process(path, backend="numpy", vocoder=str(path))


def test_vocoders_are_found_beside_the_model(path, tmp_path):
    vocoder = path.parent / "WavTokenizer-tiny-F32.gguf"
    assert find_vocoder(path) == vocoder
    assert find_vocoder(path, "off") is None
    assert str(find_vocoder(path, "other.gguf")) == "other.gguf"
    assert vocoder in files_beside(load_config(), [path])  # a confined engine may read it


def test_an_mp3_that_is_streamed_has_frames_of_one_size():
    pytest.importorskip("soundfile")
    import soundfile

    writer = SoundWriter("mp3", RATE)
    data = writer.write(sound(1.0, RATE)) + writer.end()
    file = soundfile.SoundFile(io.BytesIO(data))
    assert abs(file.frames - RATE) < 3000


def test_samples_that_are_no_numbers_are_an_error(tmp_path):
    class Broken:
        n_vocab = 4

        def embed(self, texts, *, normalize, pooling):
            return [np.full((len(texts[0]), N_FFT + 2), np.nan, np.float32)]

        def close(self):
            pass

    vocoder = Vocoder(Broken(), N_FFT + 2, tmp_path)
    with pytest.raises(RequestError, match="a sample is not a finite number"):
        vocoder.decode([1, 2]).result()
    vocoder.close()
