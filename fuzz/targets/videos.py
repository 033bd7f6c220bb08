"""Encoded videos: an error in one line, or a form within the limits and as many pixels as are asked for."""

import io
from collections.abc import Iterable

import msgspec

from pumice.errors import RequestError
from pumice.media.videos import VideoForm, VideoPlan, check_form, decode, probe

MODULES = ("pumice.media.videos",)
MAX_LEN = 4000
RUNS = 100
TOKENS = (
    b"ftyp", b"isom", b"moov", b"trak", b"mdia", b"stbl", b"stts", b"ctts", b"stsz", b"stsc", b"stco", b"co64", b"stss",
    b"elst", b"tkhd", b"mvhd", b"mdhd", b"hdlr", b"moof", b"traf", b"trun", b"sidx", b"dref", b"alis", b"mp4v", b"avc1",
    b"vp09", b"\x1aE\xdf\xa3", b"\x18S\x80g", b"\x1fC\xb6u", b"\xa3", b"\xec", b"\x01\xff\xff\xff\xff\xff\xff\xff",
    b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\0", b"\0\0\0\1",
)  # fmt: skip


def seeds() -> Iterable[bytes]:
    import av
    import numpy as np

    for codec, kind in (("mpeg4", "mp4"), ("mpeg4", "matroska"), ("libx264", "mp4"), ("libvpx", "webm")):
        file = io.BytesIO()
        with av.open(file, "w", format=kind) as container:
            stream = container.add_stream(codec, rate=25)
            stream.width, stream.height, stream.pix_fmt, stream.gop_size = 32, 16, "yuv420p", 3
            for i in range(4):
                pixels = np.full((16, 32, 3), 40 * i, np.uint8)
                container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, "rgb24")))
            container.mux(stream.encode())
        yield file.getvalue()[:MAX_LEN]


def check(data: bytes) -> None:
    try:
        form = VideoForm(*probe(data))
        check_form(form.n_frames, form.rate, form.height, form.width)
        plan = VideoPlan([0, form.n_frames // 2, form.n_frames - 1], [(5, 7)])
        pixels = decode({"data": data, "plan": msgspec.to_builtins(plan)})
    except RequestError as error:
        assert str(error).startswith("video: "), error
        assert len(str(error).splitlines()) == 1, error
        return
    assert len(pixels) == 3 * 3 * 5 * 7
