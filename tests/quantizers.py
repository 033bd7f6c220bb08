"""Numbers to quantized blocks of every type, by the gguf package and by the bundled quantizers."""

import numpy as np
from numpy.typing import NDArray

from pumice.gguf import GGMLType
from pumice.gguf import quantize as package_quantize
from pumice_cpu.quantizer import QUANTIZERS

ONLY_READ = ("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS")
"""Types that the package does not write."""


def quantize(values: NDArray[np.float32], type: GGMLType) -> NDArray[np.uint8]:
    """``values [rows, columns]`` as rows of blocks."""
    if type.name not in ONLY_READ:
        return package_quantize(values, type)
    return QUANTIZERS[type.name].quantize(np.ascontiguousarray(values, np.float32), None)
