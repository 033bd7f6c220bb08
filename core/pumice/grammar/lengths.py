"""How many characters each token of a vocabulary puts into a JSON string, and the masks of those that fit."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pumice.sampler.mask import from_bits

_CHARACTER = re.compile(rb"\\u[0-9a-fA-F]{0,4}|\\.?|[^\"\\][\x80-\xbf]*", re.DOTALL)  # of a string, or its beginning


class Lengths:
    """The characters of tokens, behind a whole character of a string."""

    def __init__(self, texts: Sequence[bytes], n_vocab: int) -> None:
        counts = np.zeros(n_vocab, np.int64)
        counts[: len(texts)] = [_n_inside(text) for text in texts]
        self._longest = int(counts.max())
        self._up_to = np.stack([from_bits(counts <= n) for n in range(self._longest + 1)])

    def at_most(self, n: int) -> NDArray[np.uint32]:
        """The mask of the tokens of at most so many characters: uint32 [n_words], not to be written to."""
        return self._up_to[min(n, self._longest)]


def _n_inside(text: bytes) -> int:
    """The characters up to what is none of a string's; an escape is one, and so is the beginning of one."""
    if text.isascii() and b"\\" not in text:
        return len(text.partition(b'"')[0])
    n, at = 0, 0
    while found := _CHARACTER.match(text, at):
        n, at = n + 1, found.end()
    return n
