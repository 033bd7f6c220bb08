"""Random numbers of a sequence: NumPy's, or llama.cpp's for the same seed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

RNGS = ("pcg64", "mt19937")
"""Generators by name: the first is the default, the second is llama.cpp's."""


class LlamaGenerator(np.random.Generator):
    """The numbers of C++'s ``std::mt19937`` and ``std::uniform_real_distribution`` in libstdc++.

    A double takes two words of 32 bits, the lower one first, a float takes one (``std::generate_canonical``).
    """

    def __init__(self, seed: int) -> None:
        words = np.random.MT19937()
        words._legacy_seeding(seed & 0xFFFFFFFF)
        super().__init__(words)

    def random(self, size: Any = None, dtype: Any = np.float64, out: Any = None) -> Any:
        """Return ``size`` numbers from [0, 1); None returns a single number."""
        assert out is None
        n = 1 if size is None else size
        double = np.dtype(dtype) == np.float64
        words: NDArray[np.uint64] = self.bit_generator.random_raw(2 * n if double else n).astype(np.uint64)
        if double:
            joined = words[0::2].astype(np.float64) + words[1::2].astype(np.float64) * 2.0**32
            numbers: NDArray[Any] = np.minimum(joined / 2.0**64, 1 - 2**-53)
        else:
            numbers = np.minimum(
                words.astype(np.float32) / np.float32(2**32), np.nextafter(np.float32(1), np.float32(0))
            )
        return numbers.astype(dtype)[0] if size is None else numbers.astype(dtype)


def make_rng(kind: str, seed: int) -> np.random.Generator:
    """Return the generator named ``kind``, one of ``RNGS``."""
    return LlamaGenerator(seed) if kind == "mt19937" else np.random.Generator(np.random.PCG64(seed))


class NumbersAhead:
    """The numbers that come next of a generator, some of which a device may use before it."""

    _LOOKED_AT = 64  # numbers drawn beyond those that are asked for

    def __init__(self, kind: str, rng: np.random.Generator) -> None:
        """Look at the numbers of ``rng``, of the kind of ``make_rng``."""
        self._rng = rng
        self._peeking = make_rng(kind, 0)
        self._coming = np.empty(0, np.float32)
        self._n_skipped = 0

    def peek(self, n: int, skip: int) -> NDArray[np.float32]:
        """Return ``n`` numbers, float32 ``[n]``, behind the next ``skip``, without using them."""
        begin = self._n_skipped + skip
        if begin + n > len(self._coming):
            self.catch_up()
            self._peeking.bit_generator.state = self._rng.bit_generator.state  # slower than drawing the numbers
            self._coming = self._peeking.random(skip + n + self._LOOKED_AT).astype(np.float32)
            begin = skip
        return self._coming[begin : begin + n]

    def skip(self, n: int) -> None:
        """Leave out ``n`` numbers."""
        self._n_skipped += n

    def catch_up(self) -> None:
        """Advance the generator past the skipped numbers."""
        if self._n_skipped:
            self._rng.random(self._n_skipped)
        self._n_skipped, self._coming = 0, self._coming[:0]
