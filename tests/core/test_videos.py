"""Videos of prompts: files of each format as frames, hostile ones as one error, and their parts in messages."""

import base64
import struct

import numpy as np
import pytest

import pumice
from gguf_files import tiny_llama
from pumice.architecture import MediaRules
from pumice.chat.messages import read_messages
from pumice.chat.prompt import PromptJob, write_prompt
from pumice.chat.template import ChatTemplate
from pumice.chat.traits import with_traits
from pumice.embeddings import Embeddings
from pumice.engine.media.rows import MediaIds, place_spans
from pumice.errors import RequestError
from pumice.media import videos
from pumice.media.videos import MAX_PIXELS, Video, VideoForm, VideoPlan
from videos import video_file
from vision_files import write_projector

av = pytest.importorskip("av")
pytest.importorskip("PIL")
SIZE = (48, 64)
PLACEHOLDER = "<|vision_start|><|video_pad|><|vision_end|>"
FILES = {
    "h264": {"codec": "h264"},
    "mpeg4": {},
    "vp8": {"codec": "libvpx", "format": "webm"},
    "vp9": {"codec": "libvpx-vp9", "format": "webm"},
    "mkv": {"codec": "h264", "format": "matroska"},
}


@pytest.fixture(scope="module")
def mp4():
    return video_file()


@pytest.mark.parametrize("kind", FILES)
def test_frames_are_found_by_their_number(kind):
    video = Video(video_file(**FILES[kind]))
    assert video.form() == VideoForm(50, 25.0, 48, 64)
    wanted = [0, 3, 20, 25, 26, 49, 49]
    frames = video.frames(VideoPlan(wanted, [SIZE]))
    assert frames.shape == (7, 48, 64, 3)
    red = frames[..., 0].mean((1, 2))  # grows by 4 with each frame
    np.testing.assert_allclose(red, [4 * i for i in wanted], atol=9)
    assert (np.diff(red)[:-1] > 0).all()


def test_a_file_says_how_frames_are_turned(mp4):
    """The matrix of a track turns the picture, as telephones write it."""
    start = mp4.index(b"tkhd") + 4 + 4 + 36
    one = 1 << 16
    turned = mp4[:start] + struct.pack(">9i", 0, one, 0, -one, 0, 0, one * 48, 0, 1 << 30) + mp4[start + 36 :]
    video = Video(turned)
    assert (video.form().height, video.form().width) == (64, 48)
    assert video.frames(VideoPlan([0], [(64, 48)])).shape == (1, 64, 48, 3)


def test_a_truncated_file_is_what_it_has():
    data = video_file(codec="libvpx", format="webm")
    form = Video(data[: len(data) * 2 // 3]).form()
    assert 5 < form.n_frames < 50


def hostile(mp4):
    webm = video_file(10, codec="libvpx", format="webm")
    return {
        "text": (b"#EXTM3U\nfile:///etc/passwd\n", "the bytes are no video"),
        "playlist in a name": (b"    ftyp#EXTM3U\n/etc/passwd", "video: "),
        "cut header": (mp4[: len(mp4) // 2], "cannot be decoded"),
        "only a header": (webm[:40], "video: "),
        "no frames": (mp4.replace(b"stsz", b"free").replace(b"stco", b"free"), "video: "),
        "another codec": (video_file(2, codec="ffv1", format="matroska"), "the codec ffv1 is not supported; send MP4"),
        "sound": (b"RIFF\0\0\0\0WAVEfmt ", "the bytes are no video"),
    }


@pytest.mark.parametrize("kind", hostile(b"ftyp"))
def test_hostile_files_are_one_error(mp4, kind):
    data, problem = hostile(mp4)[kind]
    with pytest.raises(RequestError, match=problem) as caught:
        Video(data).form()
    assert "\n" not in str(caught.value)


def test_absurd_forms_are_refused_before_decoding():
    for form, problem in (
        ((1, 25.0, 60000, 60000), "frames of 60000 x 60000 pixels"),
        ((10**9, 25.0, 48, 64), "more than 500000 frames"),
        ((0, 25.0, 48, 64), "it has no frames"),
        ((10, 1e9, 48, 64), "1e\\+09 frames a second"),
        ((10, float("nan"), 48, 64), "frames a second"),
        ((10**5, 1.0, 48, 64), "100000 seconds; at most 7200"),
        ((10, 25.0, 0, 64), "frames of 64 x 0 pixels"),
    ):
        with pytest.raises(RequestError, match=problem):
            videos.check_form(*form)


def test_plans_that_take_too_much_memory_are_refused():
    form = VideoForm(500, 25.0, 1000, 1000)
    with pytest.raises(RequestError, match=rf"have more than {MAX_PIXELS} pixels; send a shorter video"):
        VideoPlan(list(range(41)), [(1000, 1000)]).check(form)
    with pytest.raises(RequestError, match="frames that the video does not have"):
        VideoPlan([500], [(10, 10)]).check(form)


@pytest.mark.parametrize(
    ("video", "problem"),
    [
        (Video(np.zeros((2, 4, 4), np.uint8), rate=1), r"expected uint8 \[frames, height, width, 3\]"),
        (Video(np.zeros((2, 4, 4, 3), np.uint8)), "an array needs its rate"),
        (Video(b"ftyp", rate=2), "rate belongs to an array"),
        (Video([np.zeros((4, 4, 3), np.uint8)], rate=2), "expected a path, bytes or an array, not list"),
        (Video(np.zeros((2, 4, 4, 3), np.uint8), rate="25"), "rate must be a number of frames a second, not '25'"),
        (Video("/nowhere/a.mp4"), "video '/nowhere/a.mp4': cannot be read"),
        (Video(5), "expected a path, bytes or an array"),
    ],
)
def test_wrong_sources_are_refused(video, problem):
    with pytest.raises(RequestError, match=problem):
        video.form()


def test_parts_of_every_form_are_the_same_video(mp4):
    text = base64.b64encode(mp4).decode()
    url = f"data:video/mp4;base64,{text}"
    for part in (
        Video(mp4),
        {"type": "video", "video": mp4},
        {"type": "video_url", "video_url": {"url": url}},
        {"type": "video_url", "video_url": url},
        {"type": "input_video", "input_video": {"data": text}},
        {"type": "input_video", "input_video": {"url": url}},
    ):
        found: list[Video] = []
        (message,) = read_messages([{"role": "user", "content": ["a", part]}], media=found)
        assert message["content"] == [{"type": "text", "text": "a"}, {"type": "video"}]
        assert found[0].form().n_frames == 50
    for part, problem in (
        ({"type": "video", "video": "/etc/passwd"}, "URLs and paths are not opened"),
        ({"type": "video_url", "video_url": {"url": "file:///etc/passwd"}}, "URLs and paths are not opened"),
        ({"type": "video_url", "video_url": {"url": "data:image/png;base64,aaaa"}}, "expected data:video/mp4;base64"),
        ({"type": "video_url"}, "the part has no video; give it as a data: URL in video_url.url"),
    ):
        with pytest.raises(RequestError, match=problem):
            read_messages([{"role": "user", "content": [part]}], media=[])


def test_a_template_writes_its_own_placeholder_of_a_video():
    source = (
        "{% for m in messages %}{% for part in m.content %}{% if part.type == 'video' %}"
        f"{PLACEHOLDER}"
        "{% else %} {{ part.text }}{% endif %}{% endfor %}{% endfor %}"
    )
    template = with_traits(ChatTemplate(source))
    messages = [{"role": "user", "content": [{"type": "video"}, {"type": "text", "text": PLACEHOLDER}]}]
    job = PromptJob(template, (), ("", "", ""), messages, media=["video"], marker="#")
    written = write_prompt(job)
    assert written.text.replace(written.mark, "") == f"# {PLACEHOLDER}"
    assert written.mark in written.text


def test_the_times_of_frames_belong_to_a_video():
    rows = np.zeros((2 * 6, 4), np.float32)
    ids, rules, prompt = MediaIds(), MediaRules(axes=(0, 1, 2)), [0] * 15

    def ids_of(*times):
        _, media = place_spans(prompt, [Embeddings(rows, (2, 3), "video", times, start=1)], ids, 4, rules)
        return media.spans[0][0]

    assert ids_of(0, 7) != ids_of(0, 8)  # other states, which the prefix cache keeps apart
    for times, problem in (((0,), "1 x 2 x 3 do not fit 12 rows"), ((0, 2**30), "times: expected 0 to")):
        with pytest.raises(RequestError, match=problem):
            ids_of(*times)


def test_a_model_sees_a_video_in_the_process_and_in_another_one(tmp_path):
    write_projector(tmp_path / "mmproj.gguf", "idefics3")
    path = tiny_llama(tmp_path / "tiny.gguf")
    prompt = [Video(video_file(10)), "What happens?"]
    texts = []
    for load in (pumice.load, pumice.load_process):
        with load(path, backend="numpy") as model:
            texts.append(model.generate(prompt, max_tokens=4, temperature=0).text)
            assert model.facts.media == [] or "video" in model.facts.media
            with pytest.raises(RequestError, match="the bytes are no video"):
                model.generate([Video(b"no video at all"), "?"])
    assert texts[0] == texts[1]


def test_a_model_without_an_encoder_of_video_refuses_it(tmp_path, mp4):
    write_projector(tmp_path / "mmproj.gguf", "mlp")
    with (
        pumice.load(tiny_llama(tmp_path / "tiny.gguf"), backend="numpy") as model,
        pytest.raises(RequestError, match=r"this model takes no video: mmproj\.gguf has no encoder of it"),
    ):
        model.generate([Video(mp4), "?"])


def test_frames_are_counted_whatever_the_header_says(monkeypatch, mp4):
    monkeypatch.setattr(videos, "MAX_FRAMES", 30)
    with pytest.raises(RequestError, match="more than 30 frames"):
        videos.probe(mp4)


def test_a_frame_that_is_larger_than_the_header_says_is_not_decoded(monkeypatch):
    monkeypatch.setattr(videos, "MAX_PIXELS", 64 * 48 - 1)
    monkeypatch.setattr(videos, "check_form", lambda *_: None)
    with pytest.raises(RequestError, match=r"cannot be decoded|no frame can be decoded"):
        videos.probe(video_file(5, codec="h264"))
