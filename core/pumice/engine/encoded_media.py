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
from pumice.images import check_wanted

C = TypeVar("C", bound=bytes | NDArray[Any], covariant=True)
"""A file, the pixels of an image ``[height, width, 3]``, or the samples of a sound ``[n]``."""

MAX_BYTES = 128 << 20  # of the rows of all media, unless one context has more


class HasContent(Protocol[C]):
    """An image or a sound."""

    def content(self) -> C:
        """Return the bytes of the file, or what has been decoded."""


class EncodedMedia:
    """Encodes images and sounds, and keeps what stands for the latest ones. Thread-safe.

    One is decoded and encoded at a time, so that large ones take memory once.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._kept: OrderedDict[bytes, Sequence[PromptPart]] = OrderedDict()  # the latest one last
        self._size = 0
        self._lock = threading.Lock()  # guards what is kept
        self._encoding = threading.Lock()

    def get(
        self, media: HasContent[C], encode: Callable[[C], Sequence[PromptPart]], salt: str = ""
    ) -> Sequence[PromptPart]:
        """Return the texts and embeddings that stand for an image or a sound in a prompt.

        Args:
            media: the image or the sound.
            encode: decodes and encodes its content, unless the result is known.
            salt: media of requests with other salts are encoded again, so that time does not tell what others sent.

        Raises:
            RequestError: the content cannot be read, there is no encoder, or the request was cancelled.
        """
        check_wanted()
        content = media.content()
        key = _key(content, type(media).__name__, salt)
        parts = self._find(key)
        if parts is None:
            with self._encoding:
                check_wanted()
                parts = self._find(key)  # another thread may have encoded it meanwhile
                if parts is None:
                    parts = list(encode(content))
                    self._keep(key, parts)
        return parts

    def _find(self, key: bytes) -> Sequence[PromptPart] | None:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def _keep(self, key: bytes, parts: Sequence[PromptPart]) -> None:
        with self._lock:
            self._kept[key] = parts
            self._size += _size(parts)
            while self._size > self._max_bytes:
                self._size -= _size(self._kept.popitem(last=False)[1])


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
    return sum(len(part) if isinstance(part, str) else part.rows.nbytes for part in parts)
