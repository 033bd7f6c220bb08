"""Masks of tokens by the number of characters that they add to a JSON string."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pumice.sampler.mask import from_bits

_CHARACTER = re.compile(rb"\\u[0-9a-fA-F]{0,4}|\\.?|[^\"\\][\x80-\xbf]*", re.DOTALL)  # of a string, possibly incomplete


class Lengths:
    """Numbers of characters that tokens add after a complete character of a string."""

    def __init__(self, texts: Sequence[bytes], n_vocab: int) -> None:
        counts = np.zeros(n_vocab, np.int64)
        counts[: len(texts)] = [_n_inside(text) for text in texts]
        self._longest = int(counts.max())
        self._up_to = np.stack([from_bits(counts <= n) for n in range(self._longest + 1)])

    def at_most(self, n: int) -> NDArray[np.uint32]:
        """Return the mask of tokens with at most ``n`` characters: uint32 [n_words], read-only."""
        return self._up_to[min(n, self._longest)]


def _n_inside(text: bytes) -> int:
    """Return the number of characters up to the end of the string; each escape, even an incomplete one, counts once."""
    if text.isascii() and b"\\" not in text:
        return len(text.partition(b'"')[0])
    n, position = 0, 0
    while match := _CHARACTER.match(text, position):
        n, position = n + 1, match.end()
    return n
