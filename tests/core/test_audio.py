"""Sounds of prompts: their sources and forms, what is refused, and their places in prompts and chats."""

import base64
from pathlib import Path

import click
import numpy as np
import pytest

import pumice
from gguf_files import tiny_llama
from hearing_models import sound, write_folder
from hostile_sounds import hostile_sounds, pcm, wav, written
from pumice.chat.messages import read_messages
from pumice.chat.prompt import PromptJob, write_prompt
from pumice.chat.template import ChatTemplate
from pumice.chat.traits import with_traits
from pumice.cli.prompt import with_media
from pumice.convert import ConvertOptions, write_model
from pumice.gguf import GGMLType
from pumice.media.audio import MAX_SECONDS, RATE, Audio, decode
from pumice.media.images import Image
from pumice.model_files.opening import open_model

pytest.importorskip("soundfile")
soxr = pytest.importorskip("soxr")
TONE = sound(0.4)
WAV = wav(pcm(TONE))
BASE64 = base64.b64encode(WAV).decode()
MARKER = "<__media_0123__>"


def model_that_hears(folder, kind):
    """A tiny model with a projector."""
    write_folder(folder / "audio", kind)
    with open_model(folder / "audio", options=ConvertOptions(GGMLType.F32, mmproj=True)) as file:
        write_model(file, folder / "mmproj.gguf")
    return tiny_llama(folder / "tiny.gguf")


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return model_that_hears(tmp_path_factory.mktemp("hears"), "qwen2audio")


SPOKEN = np.random.default_rng(0).normal(0, 0.1, 6 * RATE).astype(np.float32)
DAMAGES = {
    "cut": lambda data: data[: len(data) * 2 // 3],
    "a hole": lambda data: data[: len(data) // 3] + data[len(data) // 2 :],
    "zeros": lambda data: data[: len(data) // 3] + bytes(700) + data[len(data) // 3 + 700 :],
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("form", ["FLAC", "OGG", "OPUS", "MP3", "WAV"])
def test_damaged_files_are_not_shortened_in_silence(form, damage):
    rate = 48_000 if form == "OPUS" else RATE
    subtypes = {"FLAC": "PCM_16", "OGG": "VORBIS", "OPUS": "OPUS", "WAV": "PCM_16"}
    data = written(SPOKEN, rate, "OGG" if form == "OPUS" else form, subtypes.get(form))
    decode(data)
    if (form, damage) == ("WAV", "zeros"):
        return  # as good as any other samples
    with pytest.raises(pumice.RequestError, match="damaged"):
        decode(DAMAGES[damage](data))


@pytest.mark.parametrize("count", [0, 1, len(SPOKEN) // 2])
def test_flac_is_read_whole_whatever_its_header_counts(count):
    data = written(SPOKEN, RATE, "FLAC", "PCM_16")
    assert int.from_bytes(data[22:26]) == len(SPOKEN)
    assert decode(data[:22] + count.to_bytes(4) + data[26:]) == decode(data)


def test_a_tag_behind_a_sound_and_a_streamed_header_are_no_damage():
    for form in ("MP3", "FLAC"):
        data = written(SPOKEN, RATE, form, None)
        assert len(decode(data + b"TAG" + bytes(125))) == len(decode(data))
    whole = wav(pcm(SPOKEN))
    for size in (0xFFFF_FFFF, 0x7FFF_FF00):
        assert len(decode(whole.replace(whole[40:44], size.to_bytes(4, "little"), 1))) == 4 * len(SPOKEN)


def test_other_rates_are_resampled_as_by_soxr():
    samples = sound(1.1, 44_100)
    expected = soxr.resample(samples, 44_100, RATE)
    np.testing.assert_allclose(Audio(samples, 44_100).samples(), expected, atol=1e-6)
    decoded = np.frombuffer(decode(written(samples, 44_100, "WAV", "FLOAT")), np.float32)
    np.testing.assert_allclose(decoded, expected, atol=1e-6)


@pytest.mark.parametrize(
    ("format", "subtype"), [("FLAC", "PCM_16"), ("OGG", "VORBIS"), ("OGG", "OPUS"), ("MP3", None), ("AIFF", "PCM_16")]
)
def test_files_of_every_format_are_decoded(format, subtype):
    samples = np.frombuffer(decode(written(TONE, RATE, format, subtype)), np.float32)
    assert abs(len(samples) - len(TONE)) <= 1200  # MP3 adds a frame
    assert 0.3 < np.abs(samples).max() < 0.5


@pytest.mark.parametrize(("data", "problem"), [pytest.param(*case, id=name) for name, *case in hostile_sounds()])
def test_hostile_files_are_refused(data, problem):
    with pytest.raises(pumice.RequestError, match=problem):
        Audio(np.frombuffer(decode(data), np.float32), RATE).samples()


@pytest.mark.parametrize(
    ("source", "rate", "problem"),
    [
        (TONE, None, "an array needs its rate"),
        (WAV, RATE, "rate belongs to an array"),
        ([0.1, 0.2], RATE, "expected a path, bytes or an array, not list"),
        (TONE, "16000", "rate must be a number of samples a second, not '16000'"),
        (TONE, True, "rate must be a number of samples a second, not True"),
        (TONE.astype(np.int32), RATE, "expected float or int16"),
        (TONE[None, None], RATE, "expected float or int16"),
        (TONE[:0], RATE, "no samples"),
        (TONE * np.nan, RATE, "not a finite number"),
        (TONE * 0 - 3e38, RATE, r"a sample of 3e\+38 is far beyond full scale, which is 1"),
        (np.broadcast_to(np.float32(0), (MAX_SECONDS * RATE + 1,)), RATE, "at most 1800"),
        (TONE, 10, "10 samples a second"),
        (7, None, "expected a path, bytes or an array, not int"),
        ("/no/such/file.wav", None, "cannot be read"),
        (bytes(33 << 20), None, "more than 32 MiB"),
    ],
)
def test_wrong_sources_are_named(source, rate, problem):
    with pytest.raises(pumice.RequestError, match=f"audio.*: .*{problem}"):
        Audio(source, rate).content() if isinstance(source, bytes) else Audio(source, rate).samples()


@pytest.mark.parametrize(
    "part",
    [
        Audio(WAV),
        {"type": "input_audio", "input_audio": {"data": BASE64, "format": "wav"}},
        {"type": "input_audio", "input_audio": {"data": f"data:audio/wav;base64,{BASE64}", "format": "wav"}},
        {"type": "audio", "audio": WAV},
        {"type": "audio", "base64": BASE64},
        {"type": "audio_url", "audio_url": {"url": f"data:audio/wav;base64,{BASE64}"}},
    ],
)
def test_parts_of_every_form_are_the_same_sound(part):
    media = []
    (message,) = read_messages([{"role": "user", "content": ["a", part]}], media=media)
    assert message["content"] == [{"type": "text", "text": "a"}, {"type": "audio"}]
    assert media[0].content() == WAV


@pytest.mark.parametrize(
    ("part", "problem"),
    [
        ({"type": "input_audio"}, "the part has no audio; give it as base64"),
        ({"type": "input_audio", "input_audio": {"format": "wav"}}, "the part has no audio; give it as base64"),
        ({"type": "input_audio", "input_audio": {"data": 7}}, "expected a data: URL, not int"),
        ({"type": "input_audio", "input_audio": {"url": "http://127.0.0.1/a.wav"}}, "URLs and paths are not opened"),
        ({"type": "audio", "audio": "/etc/passwd"}, "URLs and paths are not opened"),
        ({"type": "audio", "audio": Image(b"")}, "expected a data: URL, not Image"),
        ({"type": "audio", "audio": "data:image/png;base64,QQ=="}, "expected data:audio/wav"),
        ({"type": "audio", "base64": "Q?=="}, "not valid base64"),
    ],
)
def test_wrong_parts_are_named(part, problem):
    with pytest.raises(pumice.RequestError, match=rf"messages\[0\]\.content\[0\]: .*{problem}"):
        read_messages([{"role": "user", "content": [part]}], media=[])


@pytest.mark.parametrize("written_as", ["<|audio_bos|><|AUDIO|><|audio_eos|>", "[BEGIN_AUDIO][AUDIO]", "[[other]]"])
def test_placeholders_of_templates_are_found(written_as):
    source = (
        "{% for m in messages %}{% for part in m.content %}{% if part.type == 'audio' %}Audio: "
        f"{written_as}{{% elif part.type == 'image' %}}<image>{{% else %}}{{{{ part.text }}}}{{% endif %}}"
        "{% endfor %}{% endfor %}"
    )
    template = with_traits(ChatTemplate(source, "", ""))
    parts = [{"type": "text", "text": f"a {written_as} "}, {"type": "audio"}, {"type": "image"}, {"type": "audio"}]
    kinds = ["audio", "image", "audio"]
    messages = [{"role": "user", "content": parts}]
    prompt = write_prompt(PromptJob(template, (), ("", "", ""), messages, media=kinds, marker=MARKER))
    text = prompt.text.replace(prompt.mark, "")
    known = "[[" not in written_as
    expected = f"a {written_as} Audio: {MARKER}{MARKER}Audio: {MARKER}" if known else f"a {written_as} {MARKER * 3}"
    assert text == expected


def test_a_model_hears(path):
    other = Audio(0.5 * TONE, RATE)
    with pumice.load(path, backend="numpy", chat_template="chatml") as model:
        options = {"temperature": 0.0, "max_tokens": 3}
        heard, again, changed = (
            model.chat([{"role": "user", "content": ["Who speaks?", audio]}], **options)
            for audio in (Audio(WAV), Audio(WAV), other)
        )
        assert heard.usage.audio_tokens == changed.usage.audio_tokens == 10
        assert again.tokens == heard.tokens
        assert again.usage.cached_tokens == heard.usage.prompt_tokens - 1
        assert changed.usage.cached_tokens < heard.usage.prompt_tokens - 1
        assert model.generate(["Once", Audio(WAV), " upon"], **options).text
        with pytest.raises(pumice.RequestError, match=r"takes no images: mmproj\.gguf has no encoder"):
            model.generate([Image(np.zeros((4, 4, 3), np.uint8)), "a"])
    with (
        pumice.load(path, backend="numpy", mmproj="off", chat_template="chatml") as model,
        pytest.raises(pumice.RequestError, match="takes no sound without a projector"),
    ):
        model.chat([{"role": "user", "content": [Audio(WAV)]}])


def test_files_of_the_command_line_have_their_places():
    images, sounds = [Path("a.png")], [Path("a.wav"), Path("b.wav")]
    parts = with_media("Once", images, sounds)
    assert [str(getattr(part, "source", part)) for part in parts] == ["a.png", "a.wav", "b.wav", "Once"]
    parts = with_media("<__media__>a<__media__>b<__media__>", images, sounds)
    assert [type(part).__name__ for part in parts] == ["str", "Image", "str", "Audio", "str", "Audio", "str"]
    with pytest.raises(click.UsageError, match=r"1 marks .* for 1 --image and 2 --audio"):
        with_media("<__media__>", images, sounds)
