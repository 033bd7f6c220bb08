"""The contract of quantizers: numbers to blocks of one tensor type."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray


class Quantizer(ABC):
    """Makes the blocks of one tensor type, under whose name it is registered, such as ``Q4_K``.

    Blocks are those of ggml's reference, bit for bit, on every machine: sums in order, products and sums rounded apart.
    Called from several threads at once.
    """

    @abstractmethod
    def quantize(self, values: NDArray[np.float32], weights: NDArray[np.float32] | None) -> NDArray[np.uint8]:
        """Blocks of finite ``values [rows, columns]``: uint8 [rows, bytes of a row].

        weights: how much an error in each column counts, [columns], from an importance matrix. Types that do not look
        for a best scale ignore it; IQ1_S, IQ2_XXS and IQ2_XS cannot do without, and raise ValueError.
        """
