"""Masks of allowed tokens, a bit per token: token t is bit t % 32 of word t // 32."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.uint32]


def n_words(n_vocab: int) -> int:
    """Return the number of words of a mask."""
    return -(-n_vocab // 32)


def from_tokens(tokens: Iterable[int], n_vocab: int) -> Mask:
    """Return the mask of tokens."""
    bits = np.zeros(n_vocab, np.bool_)
    bits[list(tokens)] = True
    return from_bits(bits)


def without_tokens(tokens: Iterable[int], n_vocab: int) -> Mask:
    """Return the mask of all tokens but some, of which those outside of the vocabulary are ignored."""
    bits = np.ones(n_vocab, np.bool_)
    bits[[token for token in tokens if 0 <= token < n_vocab]] = False
    return from_bits(bits)


def from_bits(bits: NDArray[np.bool_]) -> Mask:
    """Return the mask of the tokens whose bit is set in bool ``[n_vocab]``."""
    padded = np.pad(bits, (0, -len(bits) % 32))
    return np.packbits(padded, bitorder="little").view("<u4").astype(np.uint32)


def allow(mask: Mask, tokens: Iterable[int]) -> None:
    """Add tokens to a mask."""
    for token in tokens:
        mask[token >> 5] |= np.uint32(1 << (token & 31))


def count(mask: Mask, n_vocab: int) -> int:
    """Return the number of tokens of a mask; bits beyond the vocabulary are ignored."""
    return int(np.count_nonzero(to_bits(mask, n_vocab)))


def to_bits(mask: Mask, n_vocab: int) -> NDArray[np.bool_]:
    """Return a mask as bool ``[n_vocab]``, without bits beyond the vocabulary; NumPy counts in it much faster."""
    bits = np.unpackbits(mask.astype("<u4", copy=False).view(np.uint8), bitorder="little", count=n_vocab)
    return bits.view(np.bool_)


class ListedMask:
    """The tokens of the latest of a sequence's masks, of which many stay the same."""

    def __init__(self, n_vocab: int) -> None:
        self._n_vocab = n_vocab
        self._latest: tuple[Mask, NDArray[np.bool_], NDArray[np.int32]] | None = None

    def tokens(self, mask: Mask) -> tuple[NDArray[np.bool_], NDArray[np.int32]]:
        """Return the tokens of a mask, as bool ``[n_vocab]`` and in ascending order."""
        if self._latest is None or not np.array_equal(self._latest[0], mask):
            bits = to_bits(mask, self._n_vocab)
            self._latest = mask.copy(), bits, np.flatnonzero(bits).astype(np.int32)
        return self._latest[1:]


def allows(mask: Mask, tokens: NDArray[np.integer[Any]]) -> NDArray[np.bool_]:
    """Return a bool for each of ``tokens``, True if the mask has it."""
    return ((mask[tokens >> 5] >> (tokens & 31).astype(np.uint32)) & 1).astype(bool)


def at_most_one(mask: Mask) -> Sequence[int] | None:
    """Return the only token of a mask in a tuple, an empty tuple for an empty mask, None for several tokens."""
    n_words = np.count_nonzero(mask)  # much faster than listing them
    if n_words != 1:
        return None if n_words else ()
    place = int(mask.argmax())
    word = int(mask[place])
    return (32 * place + word.bit_length() - 1,) if word & (word - 1) == 0 else None
