"""The contract of quantizers, which convert values to blocks of one tensor type."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray


class Quantizer(ABC):
    """Quantizes to one tensor type, under whose name it is registered, such as ``Q4_K``.

    Blocks equal ggml's reference bit for bit on every machine: sums are in order, products and sums rounded separately.
    Methods are called from several threads.
    """

    @abstractmethod
    def quantize(self, values: NDArray[np.float32], weights: NDArray[np.float32] | None) -> NDArray[np.uint8]:
        """Return blocks of finite ``values [rows, columns]``: uint8 [rows, bytes per row].

        ``weights [columns]`` weight the errors of columns, from an importance matrix. Types without a search for the
        best scale ignore them; IQ1_S, IQ2_XXS and IQ2_XS need them, and raise ValueError without.
        """
