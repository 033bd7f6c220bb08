"""Files of images and sounds in requests: base64, paths and bytes, within a bound."""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
from collections.abc import Iterator
from numbers import Real
from pathlib import Path
from typing import Any

from pumice.errors import MediaError
from pumice.wording import show_python

MAX_BYTES = 32 << 20  # of an encoded image or sound
_MAX_BASE64 = 4 * -(-MAX_BYTES // 3)  # characters
_MAX_TEXT = _MAX_BASE64 + _MAX_BASE64 // 16  # characters with line breaks
_PIECE = 1 << 18  # characters of base64 that are decoded at once; a multiple of 4
_STANDARD = str.maketrans("-_", "+/", " \t\r\n")  # url-safe letters, and spaces, which encoders put in
_MAX_HEAD = 256  # characters of a data: URL before its data
_MAX_NAME = 1024  # characters of a path in an error: it may be a whole image in base64


def decode_base64(text: str, kind: str) -> bytes:
    """Return the file in a text of base64.

    As MIME and browsers allow, there may be spaces and line breaks in it, url-safe letters, and no padding.

    Raises:
        RequestError: The text is not base64, or too long; ``kind`` is the first word of the message.
    """
    if len(text) > _MAX_TEXT:
        raise too_large(kind)
    try:  # in pieces, since other threads wait for each
        letters = padded("".join(map(standard_base64, _pieces(text))))
        data = b"".join(base64.b64decode(piece, validate=True) for piece in _pieces(letters))
    except (binascii.Error, ValueError):  # ValueError: letters beyond ASCII
        raise MediaError(kind, "the data is not valid base64") from None
    if len(data) > MAX_BYTES:
        raise too_large(kind)
    if not data:
        raise MediaError(kind, "the data is empty")
    return data


def standard_base64(text: str) -> str:
    """Return a text of base64 with the standard letters, and without spaces and line breaks."""
    return text.translate(_STANDARD)


def padded(letters: str) -> str:
    """Return base64 with its padding, whether it has some or not."""
    bare = letters.rstrip("=") if len(letters) - len(letters.rstrip("=")) <= 2 else letters
    return bare + "=" * (-len(bare) % 4)


def _pieces(text: str) -> Iterator[str]:
    return (text[begin : begin + _PIECE] for begin in range(0, len(text), _PIECE))


def decode_data_url(url: str, kind: str, example: str) -> bytes:
    """Return the file of a ``data:`` URL. Raises RequestError for any other URL, which is never fetched.

    Args:
        url: the URL.
        kind: first part of its media type, such as "image".
        example: a media type, for errors.
    """
    head, comma, _ = url[:_MAX_HEAD].partition(",")
    if not head.lower().startswith("data:"):
        raise MediaError(kind, f"URLs and paths are not opened: send a data: URL, not {url[:40]!r}")
    media_type, *others = head[len("data:") :].lower().split(";")
    if not comma or "base64" not in others or not media_type.startswith(f"{kind}/"):
        raise MediaError(kind, f"expected data:{example};base64,... or another {kind}, not {head[:40]!r}")
    return decode_base64(url[len(head) + 1 :], kind)


def read_source(source: Any, kind: str, expected: str) -> bytes:
    """Return the bytes of a path's file, or those given. Raises RequestError; ``expected`` says what else is taken."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        data = bytes(source)
    elif isinstance(source, (str, os.PathLike)):
        try:
            with Path(source).open("rb") as file:
                data = file.read(MAX_BYTES + 1)
        except (OSError, ValueError) as error:  # ValueError: a zero byte in the path
            reason, name = getattr(error, "strerror", None) or error, os.fspath(source)
            if name.lower().startswith(("http:", "https:", "data:")):
                reason = "addresses are not opened; give a path, or the bytes"
            raise MediaError(kind, f"cannot be read: {reason}", repr(name[:_MAX_NAME])) from None
    else:
        raise MediaError(kind, f"expected {expected}, not {type(source).__name__}")
    if len(data) > MAX_BYTES:
        with named_errors(source):
            raise too_large(kind)
    return data


def check_rate(rate: object, kind: str, unit: str) -> None:
    """Raise RequestError unless the rate of an array is a number; ``unit``: what is counted, such as samples."""
    if not isinstance(rate, Real) or isinstance(rate, bool):
        raise MediaError(kind, f"rate must be a number of {unit} a second, not {show_python(rate)}")


@contextlib.contextmanager
def named_errors(source: Any, number: str = "") -> Iterator[None]:
    """Name the file in each MediaError that names none: "image 'cat.png': ...".

    Args:
        source: path of the file; anything else has no name.
        number: name of a source that is no path, such as "2 of 3".
    """
    try:
        yield
    except MediaError as error:
        error.name = error.name or (repr(os.fspath(source)) if isinstance(source, (str, os.PathLike)) else number)
        raise


def too_large(kind: str) -> MediaError:
    """Return the error of a file with more than ``MAX_BYTES``."""
    return MediaError(kind, f"more than {MAX_BYTES >> 20} MiB; send a smaller file")
