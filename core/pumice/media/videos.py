"""Videos of prompts as frames. Files are decoded by FFmpeg's libraries (PyAV) in a confined worker process."""

from __future__ import annotations

import bisect
import functools
import io
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from pumice.errors import MediaError, MissingPackageError, RequestError
from pumice.isolation import CallLimits, WorkerPool
from pumice.media.encoded import MAX_BYTES, check_rate, decode_base64, decode_data_url, named_errors, read_source
from pumice.media.images import MAX_PIXELS, check_size

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

VIDEO_TYPES = ("video", "video_url", "input_video")  # of parts of messages
MAX_SECONDS = 2 * 3600
MAX_FRAMES = 500_000  # of a file
MAX_RATE = 1000  # frames a second
MAX_SAMPLED = 1024  # frames that a model sees
_FORMATS = ((b"ftyp", 4, "mp4"), (b"\x1aE\xdf\xa3", 0, "matroska"))  # first bytes, where, FFmpeg's demuxer
CODECS = ("h264", "hevc", "vp8", "vp9", "av1", "mpeg4")
SHOWN = "MP4, MOV, WebM or Matroska with H.264, HEVC, VP8, VP9, AV1 or MPEG-4"
_FILTERS = {"lanczos": 1, "bilinear": 2, "bicubic": 3}  # Pillow's numbers
_LIMITS = CallLimits(
    cpu_seconds=60, wall_seconds=180, memory=3 << 30, max_in=MAX_BYTES + (1 << 16), max_out=3 * MAX_PIXELS + (1 << 16)
)


def is_video(head: bytes) -> bool:
    """Return True for the first bytes of a file, 12 or more, that are those of a video."""
    return bool(_format_of(head))


def _format_of(head: bytes) -> str:
    return next((name for magic, start, name in _FORMATS if head[start : start + len(magic)] == magic), "")


class VideoForm(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The form of a video.

    Attributes:
        n_frames: number of frames.
        rate: frames a second.
        height, width: pixels of a frame.
    """

    n_frames: Annotated[int, msgspec.Meta(ge=1, le=MAX_FRAMES)]
    rate: Annotated[float, msgspec.Meta(gt=0, le=MAX_RATE)]
    height: Annotated[int, msgspec.Meta(ge=1, le=MAX_PIXELS)]
    width: Annotated[int, msgspec.Meta(ge=1, le=MAX_PIXELS)]

    @property
    def seconds(self) -> float:
        """The duration."""
        return self.n_frames / self.rate


class VideoPlan(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The frames of a video that a model sees.

    Attributes:
        frames: their numbers, in order; one may occur twice.
        sizes: heights and widths to which each is resized, one after the other.
        filter: filter of Pillow for it.
    """

    frames: Annotated[list[Annotated[int, msgspec.Meta(ge=0, lt=MAX_FRAMES)]], msgspec.Meta(max_length=MAX_SAMPLED)]
    sizes: Annotated[list[tuple[int, int]], msgspec.Meta(min_length=1, max_length=4)]
    filter: str = "bicubic"

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the resized frames."""
        return self.sizes[-1]

    def check(self, form: VideoForm) -> None:
        """Raise RequestError for a plan that takes too much memory, or does not fit the video."""
        for height, width in self.sizes:
            check_size(width, height)
        if not self.frames or not all(0 <= i < form.n_frames for i in self.frames) or self.filter not in _FILTERS:
            raise MediaError("video", "the model wants frames that the video does not have")
        if len(self.frames) * math.prod(self.size) > MAX_PIXELS:
            raise MediaError(
                "video",
                f"its {len(self.frames)} frames of {self.size[1]} x {self.size[0]} pixels that the model sees "
                f"have more than {MAX_PIXELS} pixels; send a shorter video",
            )


class Video:
    """A video of a prompt.

    Args:
        source: Path or bytes of a file (MP4, MOV, WebM or Matroska), or uint8 array ``[frames, height, width, 3]``.
        rate: Frames a second of an array; a file has its own.
    """

    def __init__(self, source: Any, rate: float | None = None) -> None:
        self.source = source
        self.rate = rate

    @classmethod
    def from_url(cls, url: str) -> Video:
        """Return the video of a ``data:`` URL. Raises RequestError for any other URL, which is never fetched."""
        return cls(decode_data_url(url, "video", "video/mp4"))

    @classmethod
    def from_base64(cls, text: str) -> Video:
        """Return the video of a file in base64. Raises RequestError for other texts, and files that are too large."""
        return cls(decode_base64(text, "video"))

    def form(self) -> VideoForm:
        """Return the number, rate and size of the frames.

        Raises RequestError for a file that cannot be read, or a video that is damaged or beyond a limit.
        """
        with named_errors(self.source):
            return form_of(self.content(), self.rate)

    def frames(self, plan: VideoPlan) -> NDArray[np.uint8]:
        """Return some frames ``[n, height, width, 3]``, resized. Raises as ``form``."""
        with named_errors(self.source):
            content = self.content()
            return frames_of(content, form_of(content, self.rate), plan)

    def content(self) -> bytes | NDArray[np.uint8]:
        """Return the bytes of the file, or the frames of an array. Raises as ``form``."""
        import numpy as np

        if not isinstance(self.source, np.ndarray):
            data = read_source(self.source, "video", "a path, bytes or an array")
            if self.rate is not None:
                raise MediaError("video", "rate belongs to an array; a file has its own")
            return data
        if self.rate is None:
            raise MediaError("video", "an array needs its rate: pumice.Video(frames, rate=25)")
        check_rate(self.rate, "video", "frames")
        if self.source.ndim != 4 or self.source.shape[3] != 3 or self.source.dtype != np.uint8:
            shape = list(self.source.shape)
            raise MediaError("video", f"expected uint8 [frames, height, width, 3], not {self.source.dtype} {shape}")
        return self.source


def form_of(content: bytes | NDArray[np.uint8], rate: float | None = None) -> VideoForm:
    """Return the form of ``Video.content``. Raises as ``Video.form``."""
    if isinstance(content, bytes):
        n, rate, height, width = _workers().call(f"{__name__}:probe", content, tuple[int, float, int, int])
    else:
        assert rate is not None
        n, height, width, _ = content.shape
    check_form(n, float(rate), height, width)
    return VideoForm(n, float(rate), height, width)


def frames_of(content: bytes | NDArray[np.uint8], form: VideoForm, plan: VideoPlan) -> NDArray[np.uint8]:
    """Return the planned frames ``[n, height, width, 3]`` of ``Video.content``. Raises as ``Video.form``."""
    import numpy as np

    plan.check(form)
    shape = len(plan.frames), *plan.size, 3
    if not isinstance(content, bytes):
        from PIL import Image

        return np.stack([np.asarray(_resized(Image.fromarray(content[i]), plan)) for i in plan.frames])
    payload = {"data": content, "plan": msgspec.to_builtins(plan)}
    data = _workers().call(f"{__name__}:decode", payload, bytes)
    if len(data) != math.prod(shape):
        raise MediaError("video", "the decoder returned a wrong number of pixels")
    return np.frombuffer(data, np.uint8).reshape(shape)


def check_form(n_frames: int, rate: float, height: int, width: int) -> None:
    """Raise RequestError for a video with too many frames or pixels, none, or an unusual rate."""
    if not (height > 0 < width and height * width <= MAX_PIXELS):
        raise MediaError("video", f"frames of {width} x {height} pixels; at most {MAX_PIXELS} are supported")
    if not 0 < n_frames <= MAX_FRAMES:
        problem = "it has no frames" if n_frames <= 0 else f"more than {MAX_FRAMES} frames"
        raise MediaError("video", f"{problem}; send one of at most {MAX_SECONDS // 3600} hours")
    if not (math.isfinite(rate) and 0 < rate <= MAX_RATE):
        raise MediaError("video", f"{rate:g} frames a second; more than 0 and at most {MAX_RATE} are supported")
    if n_frames / rate > MAX_SECONDS:
        raise MediaError("video", f"{n_frames / rate:.0f} seconds; at most {MAX_SECONDS} are supported")


# --- in the worker


def probe(data: bytes) -> tuple[int, float, int, int]:
    """Return the number of frames of a file, frames a second, height and width; runs in a worker.

    Frames are counted, whatever the header says. Raises RequestError.
    """
    with _Opened(data) as (container, stream):
        check_form(1, 1.0, stream.height, stream.width)
        times = sorted(time for time, _ in _packets(container, stream))
        rate = _rate(stream, times)
        check_form(len(times), rate, stream.height, stream.width)
        container.seek(times[0], stream=stream, backward=True)
        first = next(container.decode(stream), None)
        if first is None:
            raise MediaError("video", "no frame can be decoded; the file is damaged")
        width, height = _upright(first).size
        check_form(len(times), rate, height, width)
        return len(times), rate, height, width


def decode(payload: dict[str, Any]) -> bytes:
    """Return the planned frames of a file, one after the other; runs in a worker. Raises RequestError."""
    plan = msgspec.convert(payload["plan"], VideoPlan)
    with _Opened(payload["data"]) as (container, stream):
        packets = list(_packets(container, stream))
        times = sorted(time for time, _ in packets)
        keys = sorted(time for time, is_key in packets if is_key)
        if not times or max(plan.frames) >= len(times):
            raise MediaError("video", "it ends before the last frame that the model sees")
        made: dict[int, bytes] = {}
        numbers = sorted(set(plan.frames))
        for i, frame in zip(numbers, _at(container, stream, [times[i] for i in numbers], keys), strict=False):
            made[i] = _resized(_upright(frame), plan).tobytes()
        if not made:
            raise MediaError("video", "no frame can be decoded; the file is damaged")
        for i in numbers:  # a file that ends in the middle of a frame lacks its last ones
            made.setdefault(i, made[max(made)])
        return b"".join(made[i] for i in plan.frames)


class _Opened:
    """A file that is open in FFmpeg. Errors of its libraries become a RequestError."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __enter__(self) -> tuple[Any, Any]:
        try:
            import av
            from PIL import Image  # noqa: F401  (before a file is read)
        except ImportError:
            raise MissingPackageError("video", "decoding needs PyAV and Pillow: pip install av pillow") from None
        format = _format_of(self._data[:16])
        if not format:
            raise MediaError("video", f"the bytes are no video; send {SHOWN}")
        av.logging.set_level(None)
        try:
            self._container = av.open(io.BytesIO(self._data), format=format, metadata_errors="replace")
        except Exception as error:
            raise _unreadable(error) from None
        try:
            return self._container, _stream(self._container)
        except BaseException:
            self._container.close()
            raise

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self._container.close()
        if isinstance(error, Exception) and not isinstance(error, (RequestError, MemoryError)):
            raise _unreadable(error) from None


def _unreadable(error: Exception) -> RequestError:
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return MediaError("video", f"it cannot be decoded: {reason.splitlines()[0]}")


def _stream(container: Any) -> Any:
    """Return the first stream of video, of a codec that is supported."""
    if not container.streams.video:
        raise MediaError("video", "the file has no video")
    stream = container.streams.video[0]
    name = stream.codec_context.codec.canonical_name if stream.codec_context else "unknown"
    if name not in CODECS:
        raise MediaError("video", f"the codec {name} is not supported; send {SHOWN}")
    stream.thread_count = 1
    stream.codec_context.options = {"max_pixels": str(MAX_PIXELS)}
    return stream


def _packets(container: Any, stream: Any) -> Iterator[tuple[int, bool]]:
    """Yield time and whether it is a key frame of each packet that has one to show. Raises RequestError."""
    n = 0
    for packet in container.demux(stream):
        if packet.pts is None or not packet.size or packet.is_discard:
            continue
        n += 1
        if n > MAX_FRAMES:
            check_form(n, 1.0, stream.height, stream.width)
        yield packet.pts, packet.is_keyframe


def _rate(stream: Any, times: Sequence[int]) -> float:
    """Return frames a second: those of the header if they fit the times of the frames, else by these."""
    named = float(stream.average_rate or 0)
    if len(times) < 2 or times[-1] == times[0]:
        return named or 1.0
    by_times = float(Fraction(len(times) - 1) / ((times[-1] - times[0]) * Fraction(stream.time_base)))
    return named if named and abs(named / by_times - 1) < 0.1 else by_times


def _at(container: Any, stream: Any, times: Sequence[int], keys: Sequence[int]) -> Iterator[Any]:
    """Yield the frame at each of ascending times, or the next one. Far ones are reached by their key frame."""
    reached: int | None = None  # the latest key frame from which decoding began
    frames: Iterator[Any] = iter(())
    frame = None
    for time in times:
        place = bisect.bisect_right(keys, time)
        key = keys[place - 1] if place else None
        if reached is None or (key is not None and key > max(reached, -1 if frame is None else frame.pts)):
            container.seek(key if key is not None else times[0], stream=stream, backward=True)
            frames, frame = container.decode(stream), None
            reached = key if key is not None else times[0]
        while frame is None or frame.pts is None or frame.pts < time:
            following = next(frames, None)
            if following is None:
                return
            frame = following
        yield frame


def _upright(frame: Any) -> Any:
    """Return a frame as Pillow's image, turned as the file says."""
    from PIL.Image import Transpose

    turns = {90: Transpose.ROTATE_90, 180: Transpose.ROTATE_180, 270: Transpose.ROTATE_270}
    turn = turns.get(round(frame.rotation) % 360)
    image = frame.to_image()
    return image if turn is None else image.transpose(turn)


def _resized(image: Any, plan: VideoPlan) -> Any:
    from PIL import Image

    for height, width in plan.sizes:
        if image.size != (width, height):
            image = image.resize((width, height), Image.Resampling(_FILTERS[plan.filter]))
    return image


@functools.cache
def _workers() -> WorkerPool:
    """Return the workers that this process shares."""
    return WorkerPool("decoding the video", _LIMITS, n_workers=2)
