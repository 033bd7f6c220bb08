"""Images of prompts as pixels. Encoded images are decoded by Pillow in a confined worker process."""

from __future__ import annotations

import functools
import io
from typing import TYPE_CHECKING, Any

from pumice.errors import MediaError, MissingPackageError, RequestError
from pumice.isolation import CallLimits, WorkerPool
from pumice.media.encoded import MAX_BYTES, decode_base64, decode_data_url, named_errors, read_source
from pumice.wording import alternatives

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAX_PIXELS = 40_000_000
MAX_IMAGES = 64  # of a request, with sounds
IMAGE_TYPES = ("image", "image_url", "input_image")  # of parts of messages
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")
_LIMITS = CallLimits(cpu_seconds=20, memory=2 << 30, max_in=MAX_BYTES + 1024, max_out=3 * MAX_PIXELS + (1 << 16))


class Image:
    """An image of a prompt.

    Args:
        source: Path, encoded bytes (PNG, JPEG, WebP, GIF, BMP or TIFF; the first frame counts), Pillow image, or uint8
            array ``[height, width, 3]``. A Pillow image that is open but not loaded counts as the bytes of its file.
    """

    def __init__(self, source: Any) -> None:
        self.source = source

    @classmethod
    def from_url(cls, url: str) -> Image:
        """Return the image of a ``data:`` URL. Raises RequestError for any other URL, which is never fetched."""
        return cls(decode_data_url(url, "image", "image/png"))

    @classmethod
    def from_base64(cls, text: str) -> Image:
        """Return the image of a file in base64. Raises RequestError for other texts, and files that are too large."""
        return cls(decode_base64(text, "image"))

    def pixels(self) -> NDArray[np.uint8]:
        """Return uint8 ``[height, width, 3]``: upright by its EXIF orientation, and on white if it is transparent.

        Raises RequestError for a file that cannot be read, or an image that is damaged or beyond a limit.
        """
        with named_errors(self.source):
            return pixels_of(self.content())

    def content(self) -> bytes | NDArray[np.uint8]:
        """Return the bytes of the file, or the pixels of an image that has been decoded. Raises as ``pixels``."""
        import numpy as np

        if isinstance(self.source, np.ndarray):
            return _checked(self.source)
        if hasattr(self.source, "tobytes") and hasattr(self.source, "getexif"):  # Pillow's
            check_size(*self.source.size)
            if not _is_unread(self.source):
                return _checked(np.asarray(flat(self.source)))
        return self._bytes()

    def _bytes(self) -> bytes:
        source = _unread_bytes(self.source) if hasattr(self.source, "getexif") else self.source
        return read_source(source, "image", "a path, bytes, a Pillow image or an array")


def pixels_of(content: bytes | NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the pixels of ``Image.content``. Raises as ``Image.pixels``."""
    import numpy as np

    if isinstance(content, np.ndarray):
        return content
    width, height, data = _workers().call(f"{__name__}:decode", content, tuple[int, int, bytes])
    if len(data) != 3 * width * height:
        raise MediaError("image", "the decoder returned a wrong number of pixels")
    return _checked(np.frombuffer(data, np.uint8).reshape(height, width, 3))


def decode(data: bytes) -> tuple[int, int, bytes]:
    """Return width, height and RGB values of an encoded image; runs in a worker. Raises RequestError."""
    try:
        from PIL import Image as Pillow
        from PIL import UnidentifiedImageError
    except ImportError:
        raise MissingPackageError("image", "decoding needs Pillow: pip install pillow") from None
    Pillow.MAX_IMAGE_PIXELS = None  # whose check comes before ``check_size``, and tells another bound
    try:
        with Pillow.open(io.BytesIO(data), formats=FORMATS) as image:
            check_size(*image.size)
            upright = flat(image)
            return *upright.size, upright.tobytes()
    except RequestError:
        raise
    except UnidentifiedImageError:
        raise MediaError("image", f"the bytes are no image; send {alternatives(FORMATS)}") from None
    except Exception as error:
        raise MediaError("image", f"it cannot be decoded: {type(error).__name__}: {error}") from None


def flat(image: Any) -> Any:
    """Return a Pillow image as RGB: upright, 16 bit scaled to 8, transparent parts on white."""
    from PIL import Image as Pillow
    from PIL import ImageOps

    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I;16") or image.mode == "I":
        image = image.convert("I").point(lambda value: value * (1 / 256)).convert("L")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Pillow.alpha_composite(Pillow.new("RGBA", image.size, "white"), image)
    return image.convert("RGB")


def _is_unread(image: Any) -> bool:
    """Return True for a Pillow image whose file is open, but not decoded yet."""
    from PIL.ImageFile import ImageFile

    return isinstance(image, ImageFile) and (bool(image.tile) or image._im is None)


def _unread_bytes(image: Any) -> bytes:
    """Return the first bytes of the file of a Pillow image, one more than are permitted."""
    if image.tell():
        raise MediaError("image", f"frame {image.tell()} of the Pillow image is not loaded; call its load() first")
    try:
        position = image.fp.tell()
        image.fp.seek(0)
        data = bytes(image.fp.read(MAX_BYTES + 1))
        image.fp.seek(position)
    except (AttributeError, OSError, ValueError):  # ValueError: a closed file
        raise MediaError("image", "the file of the Pillow image is closed; call load() before it is closed") from None
    return data


def check_size(width: int, height: int) -> None:
    """Raise RequestError for an image with too many pixels, or none."""
    if not width * height:
        raise MediaError("image", f"{width} x {height} pixels; it has none")
    if width * height > MAX_PIXELS:
        raise MediaError("image", f"{width} x {height} pixels; at most {MAX_PIXELS} are supported; make it smaller")


def _checked(pixels: NDArray[Any]) -> NDArray[np.uint8]:
    if pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.dtype != "uint8":
        raise MediaError("image", f"expected uint8 [height, width, 3], not {pixels.dtype} {list(pixels.shape)}")
    check_size(pixels.shape[1], pixels.shape[0])
    return pixels


@functools.cache
def _workers() -> WorkerPool:
    """Return the workers that this process shares."""
    return WorkerPool("decoding the image", _LIMITS, n_workers=2)
