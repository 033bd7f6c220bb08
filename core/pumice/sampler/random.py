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
