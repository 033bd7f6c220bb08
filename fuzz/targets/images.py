"""Encoded images: an error in one line, or as many pixels as width and height say."""

import io
from collections.abc import Iterable

from pumice.errors import RequestError
from pumice.media.images import MAX_PIXELS, decode

MODULES = ("pumice.media.images",)
MAX_LEN = 2000
RUNS = 150
TOKENS = (
    b"\x89PNG\r\n\x1a\n", b"IHDR", b"IDAT", b"IEND", b"tRNS", b"eXIf", b"iCCP", b"zTXt", b"acTL", b"GIF89a", b"BM",
    b"\xff\xd8\xff", b"\xff\xc0", b"\xff\xda", b"\xff\xe1", b"Exif\0\0", b"II*\0", b"MM\0*", b"RIFF", b"WEBP", b"VP8X",
    b"\xff\xff\xff\xff", b"\0\0\0\0",
)  # fmt: skip


def seeds() -> Iterable[bytes]:
    from PIL import Image

    image = Image.radial_gradient("L").resize((9, 7))
    for mode, kind in (("RGB", "PNG"), ("P", "PNG"), ("LA", "PNG"), ("I;16", "PNG"), ("RGB", "JPEG"), ("CMYK", "JPEG"),
                       ("P", "GIF"), ("RGB", "BMP"), ("1", "TIFF"), ("RGBA", "WEBP")):  # fmt: skip
        file = io.BytesIO()
        image.convert(mode).save(file, kind)
        yield file.getvalue()[:MAX_LEN]


def check(data: bytes) -> None:
    try:
        width, height, pixels = decode(data)
    except RequestError as error:
        assert str(error).startswith("image: "), error
        return
    assert 0 < width * height <= MAX_PIXELS
    assert len(pixels) == 3 * width * height
