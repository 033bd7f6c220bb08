"""Image files as an attacker, or an unusual camera, would send them: every one by its seed.

``hostile(seed)`` gives a file and the statuses that its request may have: 200 for what is odd but an image, 400 for
what is none, and both where it depends on the library that decodes.
"""

import functools
import io
import struct
import zlib
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
from PIL import Image

RIGHT, WRONG, EITHER = {200}, {400}, {200, 400}
Case = tuple[bytes, set[int]]


def hostile(seed: int) -> tuple[str, bytes, set[int]]:
    """The kind of a file, the file, and its statuses. Kinds take turns."""
    name, make = list(KINDS.items())[seed % len(KINDS)]
    data, statuses = make(Random(seed))
    return name, data, statuses


def photo(random: Random, mode: str = "RGB", width: int = 0, height: int = 0) -> Image.Image:
    """Noise on a gradient, of 16 to 80 pixels a side unless a size is given."""
    width, height = width or random.randint(16, 80), height or random.randint(16, 80)
    values = np.random.default_rng(random.getrandbits(32)).integers(0, 64, (height, width, 3))
    values[..., 0] += np.linspace(0, 190, width, dtype=np.int64)
    return Image.fromarray(values.astype(np.uint8)).convert(mode)


def saved(image: Image.Image, format: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


def any_image(random: Random) -> bytes:
    format = random.choice(["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"])
    return saved(photo(random), format)


@functools.cache
def packed(n_bytes: int) -> bytes:
    """Zeros, compressed."""
    return zlib.compress(bytes(n_bytes), 9)


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, body: bytes, depth: int = 8, colour: int = 2, more: bytes = b"") -> bytes:
    """A PNG file with any header, and any compressed body."""
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + more + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def bomb(random: Random) -> Case:
    """A small file that says that it is huge, or would be."""
    width, height = random.choice([(65535, 65535), (6400, 6300), (40_000_001, 1), (2**31 - 1, 2**31 - 1)])
    zeros = packed(1 << 20)
    short = struct.pack("<HH", min(width, 65535), min(height, 65535))
    return random.choice([
        png(width, height, zeros),
        b"GIF89a" + struct.pack("<HH", 65535, 65535) + b"\x80\0\0" + bytes(6) + b",\0\0\0\0" + short + b"\0\x08\x01\0;",
        b"BM" + struct.pack("<IHHIIiiHHIIiiII", 200, 0, 0, 54, 40, width, height, 1, 24, 0, 0, 0, 0, 0, 0) + bytes(99),
        b"\xff\xd8\xff\xc0\x00\x11\x08" + struct.pack(">HH", 65535, 65535) + b"\x03\x01\x11\0\x02\x11\1\x03\x11\1",
        tiff({256: width, 257: height, 258: 8, 262: 1, 273: 8, 277: 1, 278: height, 279: 100}),
    ]), WRONG  # fmt: skip


def truncated(random: Random) -> Case:
    data = any_image(random)
    return data[: random.randint(1, len(data) - 1)], EITHER


def flipped(random: Random) -> Case:
    data = bytearray(any_image(random))
    for _ in range(random.randint(1, 20)):
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    return bytes(data), EITHER


def spliced(random: Random) -> Case:
    """The beginning of one file, and the end of another."""
    first, second = any_image(random), any_image(random)
    return first[: random.randrange(len(first))] + second[random.randrange(len(second)) :], EITHER


def noise(random: Random) -> Case:
    head = random.choice(
        [b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0", b"GIF89a", b"BM", b"II*\0", b"RIFF\xff\0\0\0WEBPVP8L"]
    )
    return head + random.randbytes(random.randint(1, 3000)), WRONG if not head else EITHER


def sizes(random: Random) -> Case:
    """No pixels, one pixel, or sides that no encoder takes."""
    width, height, right = random.choice(
        [(0, 0, WRONG), (0, 9, WRONG), (1, 1, RIGHT), (1, 5000, WRONG), (9000, 2, WRONG)]
    )
    if width and height:
        return saved(photo(random, width=width, height=height), "PNG"), right
    return png(width, height, zlib.compress(b"")), right


def animated(random: Random) -> Case:
    frames = [photo(random, width=24, height=24) for _ in range(random.randint(2, 60))]
    format = random.choice(["GIF", "PNG", "WEBP", "TIFF"])
    return saved(frames[0], format, save_all=True, append_images=frames[1:]), RIGHT


def modes(random: Random) -> Case:
    """CMYK, 16 bit, palettes, transparency, floats."""
    mode, format = random.choice([
        ("CMYK", "JPEG"), ("CMYK", "TIFF"), ("L", "JPEG"), ("YCbCr", "JPEG"), ("LA", "PNG"), ("RGBA", "PNG"),
        ("P", "PNG"), ("P", "GIF"), ("1", "PNG"), ("1", "TIFF"), ("RGBA", "WEBP"), ("F", "TIFF"), ("LAB", "TIFF"),
        ("I;16", "PNG"), ("I;16", "TIFF"), ("I", "TIFF"),
    ])  # fmt: skip
    if mode in ("I;16", "I"):
        values = np.random.default_rng(random.getrandbits(32)).integers(0, 1 << 16, (20, 30))
        image = Image.fromarray(values.astype(np.uint16 if mode == "I;16" else np.int32))
    elif mode == "LAB":
        image = Image.frombytes("LAB", (8, 8), random.randbytes(192))
    else:
        image = photo(random, mode)
    options = {"transparency": 0} if mode == "P" and random.random() < 0.5 else {}
    return saved(image, format, **options), RIGHT


def turned(random: Random) -> Case:
    """EXIF data with each orientation, wrong ones, and what is no EXIF data."""
    exif = Image.Exif()
    exif[0x0112] = random.choice([*range(1, 9), 0, 9, 65535])
    data = exif.tobytes() if random.random() < 0.6 else b"Exif\0\0" + random.randbytes(random.randint(0, 200))
    format = random.choice(["JPEG", "PNG", "WEBP"])
    return saved(photo(random), format, exif=data), EITHER if data[:6] == b"Exif\0\0" else RIGHT


def chunks(random: Random) -> Case:
    """Texts and profiles that unpack to much more, and lengths that lie."""
    large = packed(50 << 20)
    body = zlib.compress(b"\0" + bytes(30))
    more = random.choice([
        chunk(b"zTXt", b"a\0\0" + large),
        chunk(b"iTXt", b"a\0\1\0\0\0" + large),
        chunk(b"iCCP", b"a\0\0" + large),
        chunk(b"tEXt", b"a\0" + bytes(5 << 20)),
        struct.pack(">I", 2**31) + b"tEXt" + bytes(99),
        struct.pack(">I", 2**32 - 1) + b"gAMA" + bytes(99),
        chunk(b"IHDR", struct.pack(">IIBBBBB", 65535, 65535, 8, 2, 0, 0, 0)),
        chunk(b"PLTE", bytes(767)),
        chunk(b"acTL", struct.pack(">II", 2**31 - 1, 0)),
    ])  # fmt: skip
    return png(10, 1, body, more=more), EITHER


def tiff(tags: dict[int, int], following: int = 0, pixels: int = 100) -> bytes:
    """A TIFF file whose tags are 32-bit integers; ``following`` is the place of its next directory."""
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in sorted(tags.items()))
    directory = struct.pack("<H", len(tags)) + entries + struct.pack("<I", following)
    return b"II*\0" + struct.pack("<I", 8 + pixels) + bytes(pixels) + directory


def directories(random: Random) -> Case:
    """TIFF files with loops, and with places and lengths that are not there."""
    tags = {256: 10, 257: 10, 258: 8, 262: 1, 273: 8, 277: 1, 278: 10, 279: 100}
    wrong = random.choice([
        {273: 2**32 - 1}, {279: 2**32 - 1}, {278: 2**32 - 1}, {259: random.randrange(2**16)}, {258: 2**16},
        {277: 2**31}, {317: 2}, {322: 2**31, 323: 2**31, 324: 8, 325: 9}, {330: 108}, {34665: 108},
    ])  # fmt: skip
    following = random.choice([0, 108, 2**32 - 1])
    return tiff(tags | wrong, following), EITHER


def others(random: Random) -> Case:
    """Return files that other programs open as an image, or as a program."""
    return random.choice([
        b"<svg xmlns='http://www.w3.org/2000/svg'><image href='file:///etc/passwd'/></svg>",
        b"<?xml version='1.0'?><!DOCTYPE x [<!ENTITY e SYSTEM 'file:///etc/passwd'>]><svg>&e;</svg>",
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(%pipe%id) (r) file\n",
        b"%PDF-1.7\n1 0 obj<</Type/Catalog>>endobj\n",
        b"push graphic-context\nviewbox 0 0 9 9\nimage over 0,0 0,0 'ephemeral:/etc/passwd'\n",
        b"PK\3\4" + bytes(60),
        b"\x7fELF" + bytes(60),
        b"8BPS\0\1" + bytes(60),
        b"\0\0\1\0\1\0" + bytes(60),
        b"\0\0\0\x20ftypavif" + bytes(60),
        b"P6 9 9 255 " + bytes(243),
        b"#define x_width 9\n#define x_height 9\nstatic char x_bits[] = {0};",
        b"<html><script>alert(1)</script></html>",
        b"SIMPLE  =                    T",
    ]), WRONG  # fmt: skip


def polyglot(random: Random) -> Case:
    """An image that is a program, too."""
    tail = random.choice(
        [b"PK\5\6" + bytes(18), b"%PDF-1.4\n", b"<script>alert(1)</script>", b"#!/bin/sh\nid\n", bytes(1 << 16)]
    )
    return any_image(random) + tail, RIGHT


KINDS: dict[str, Callable[[Random], Case]] = {
    make.__name__: make
    for make in (
        bomb, truncated, flipped, spliced, noise, sizes, animated, modes, turned, chunks, directories, others, polyglot,
    )
}  # fmt: skip
