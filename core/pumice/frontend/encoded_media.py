"""Encoded images and sounds of earlier prompts: the same one in the next turn of a chat costs nothing."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from pumice.chat.mixed import PromptPart
from pumice.clients import check_wanted

D = TypeVar("D")
"""Pixels or samples."""
C = TypeVar("C", bound=bytes | NDArray[Any], covariant=True)
"""A file, the pixels of an image ``[height, width, 3]``, or the samples of a sound ``[n]``."""

MAX_BYTES = 128 << 20  # of the rows of all media, unless one context has more
MOST_DECODED = 16 << 20  # bytes of what is being encoded, up to which another one is decoded


class HasContent(Protocol[C]):
    """An image or a sound."""

    def content(self) -> C:
        """Return the bytes of the file, or what has been decoded."""


class EncodedMedia:
    """Encodes images and sounds, and keeps what stands for the latest ones. Thread-safe.

    One is decoded at a time, and only while those that are being encoded take little memory. Several small ones are so
    encoded at once, and may share the steps of an encoder.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._kept: OrderedDict[bytes, Sequence[PromptPart]] = OrderedDict()  # the latest one last
        self._size = 0
        self._coming: dict[bytes, int] = {}  # bytes of what is being encoded, by key
        self._ended = threading.Condition()  # guards these, and tells that one has been encoded
        self._decoding = threading.Lock()

    def get(
        self,
        media: HasContent[C],
        decode: Callable[[C], D],
        encode: Callable[[D], Sequence[PromptPart]],
        salt: str = "",
    ) -> Sequence[PromptPart]:
        """Return the texts and embeddings that stand for an image or a sound in a prompt.

        Args:
            media: the image or the sound.
            decode: decodes its content, unless what stands for it is known.
            encode: returns what stands for it.
            salt: media of requests with other salts are encoded again, so that time does not tell what others sent.

        Raises:
            RequestError: the content cannot be read, there is no encoder, or the request was cancelled.
        """
        check_wanted()
        content = media.content()
        key = _key(content, type(media).__name__, salt)
        if (parts := self._find(key)) is not None:
            return parts
        with self._decoding:
            with self._ended:
                self._ended.wait_for(lambda: key not in self._coming and sum(self._coming.values()) <= MOST_DECODED)
            check_wanted()
            if (parts := self._find(key)) is not None:  # another thread has encoded it meanwhile
                return parts
            decoded = decode(content)
            with self._ended:
                self._coming[key] = _decoded_bytes(decoded)
        try:
            parts = list(encode(decoded))
            self._keep(key, parts)
            return parts
        finally:
            with self._ended:
                del self._coming[key]
                self._ended.notify_all()

    def _find(self, key: bytes) -> Sequence[PromptPart] | None:
        with self._ended:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def _keep(self, key: bytes, parts: Sequence[PromptPart]) -> None:
        with self._ended:
            self._kept[key] = parts
            self._size += _size(parts)
            while self._size > self._max_bytes:
                self._size -= _size(self._kept.popitem(last=False)[1])


def _decoded_bytes(decoded: object) -> int:
    """Return the bytes of pixels or samples, which may be in a tuple with their form."""
    if isinstance(decoded, tuple):
        return sum(map(_decoded_bytes, decoded))
    return decoded.nbytes if isinstance(decoded, np.ndarray) else 0


def _key(content: bytes | NDArray[Any], kind: str, salt: str) -> bytes:
    """Return a hash of a file, or of pixels or samples, of what they are, and of the salt."""
    digest = hashlib.blake2b(salt.encode("utf-8", "surrogatepass"), digest_size=32, person=kind.encode())
    if isinstance(content, np.ndarray):
        digest = hashlib.blake2b(np.array(content.shape, np.int64).data, key=digest.digest(), person=b"values")
        digest.update(np.ascontiguousarray(content).data)
    else:
        digest = hashlib.blake2b(content, key=digest.digest(), person=b"file")
    return digest.digest()


def _size(parts: Sequence[PromptPart]) -> int:
    return sum(len(part) if isinstance(part, str) else part.nbytes for part in parts)
