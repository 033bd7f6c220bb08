"""Tensor types: how many numbers a block holds and how many bytes it takes.

The numbering is ggml's (`enum ggml_type`), as the `gguf` package publishes it.
"""

from gguf import GGMLQuantizationType as GGMLType
from gguf.constants import GGML_QUANT_SIZES

__all__ = ["GGMLType", "block_size", "row_bytes", "type_size"]

_SIZES = {
    **GGML_QUANT_SIZES,
    # The package counts two float32 here; ggml's block_q8_1 holds two float16 and 32 int8.
    GGMLType.Q8_1: (32, 2 + 2 + 32),
}


def block_size(type: GGMLType) -> int:
    """Numbers in one block; 1 for types that are not quantized."""
    return _SIZES[type][0]


def type_size(type: GGMLType) -> int:
    """Bytes of one block."""
    return _SIZES[type][1]


def row_bytes(type: GGMLType, n: int) -> int:
    """Bytes of a row of `n` numbers. ValueError unless `n` is a whole number of blocks."""
    block, size = _SIZES[type]
    if n % block:
        raise ValueError(f"a row of {n} is not a whole number of {type.name} blocks of {block}")
    return n // block * size
