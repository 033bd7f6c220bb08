"""Make tests/fixtures/ggml_blocks.npz: random blocks of every tensor type, and ggml's own numbers for them; and
random numbers, and ggml's own blocks for them, of the types that the gguf package does not write.

    python tests/make_fixtures/ggml_blocks.py path/to/libggml-base.so

The numbers come from the library's `to_float`. It has none for a few types: Q8_K is decoded by its
`dequantize_row_q8_K`; a Q8_1 block without its sum is a Q8_0 block, and decoded as one; integers and F64 are
converted by NumPy. Blocks with an infinite or undefined number are thrown away. Blocks come from `from_float`.
"""

import ctypes
import sys
from pathlib import Path

import numpy as np

from pumice.gguf import GGMLType, block_size, type_size

OUT = Path(__file__).resolve().parents[1] / "fixtures" / "ggml_blocks.npz"
Convert = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
WRITTEN = [GGMLType.Q2_0]
CONVERTED = {"F64": "<f8", "I8": "<i1", "I16": "<i2", "I32": "<i4", "I64": "<i8"}


class TypeTraits(ctypes.Structure):
    """`struct ggml_type_traits` of ggml.h."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("block_size", ctypes.c_int64),
        ("block_size_interleave", ctypes.c_int64),
        ("type_size", ctypes.c_size_t),
        ("is_quantized", ctypes.c_bool),
        ("to_float", ctypes.c_void_p),
        ("from_float", ctypes.c_void_p),
    ]


def main(library: str) -> None:
    ggml = ctypes.CDLL(library)
    ggml.ggml_get_type_traits.restype = ctypes.POINTER(TypeTraits)
    rng = np.random.default_rng(2024)
    arrays = {}
    for type in GGMLType:
        traits = ggml.ggml_get_type_traits(int(type)).contents
        assert (traits.block_size, traits.type_size) == (block_size(type), type_size(type)), type
        n_kept = max(3, 48 // traits.block_size)
        blocks = rng.integers(0, 256, (64 + n_kept, traits.type_size), np.uint8)
        numbers = reference(ggml, traits, type, blocks)
        finite = np.isfinite(numbers).all(axis=1)
        arrays[f"{type.name}.blocks"] = blocks[finite][:n_kept]
        arrays[f"{type.name}.numbers"] = numbers[finite][:n_kept]
        assert len(arrays[f"{type.name}.blocks"]) == n_kept, type
    for type in WRITTEN:
        values = some_numbers(rng, block_size(type))
        arrays[f"{type.name}.values"] = values
        arrays[f"{type.name}.written"] = written(ggml, type, values)
    np.savez_compressed(OUT, **arrays)
    print(f"{OUT}: {OUT.stat().st_size} bytes")


def reference(ggml: ctypes.CDLL, traits: TypeTraits, type: GGMLType, blocks: np.ndarray) -> np.ndarray:
    """float32 numbers of shape (blocks, block size)."""
    if type.name in CONVERTED:
        with np.errstate(over="ignore"):
            return blocks.view(CONVERTED[type.name]).astype(np.float32)
    if type.name == "F32":
        return blocks.view("<f4")
    to_float = traits.to_float
    if type.name == "Q8_K":
        to_float = ctypes.cast(ggml.dequantize_row_q8_K, ctypes.c_void_p).value
    elif type.name == "Q8_1":
        to_float = ggml.ggml_get_type_traits(int(GGMLType.Q8_0)).contents.to_float
        blocks = np.delete(blocks, [2, 3], axis=1)
    blocks = np.ascontiguousarray(blocks)
    numbers = np.empty((len(blocks), traits.block_size), np.float32)
    Convert(to_float)(blocks.ctypes.data, numbers.ctypes.data, numbers.size)
    return numbers


def some_numbers(rng: np.random.Generator, n: int) -> np.ndarray:
    """float32 [6, n]: random ones, small whole ones, which make ties, and zeros."""
    values = np.concatenate([rng.standard_normal((3, n)), rng.integers(-4, 5, (2, n)), np.zeros((1, n))])
    return values.astype(np.float32)


def written(ggml: ctypes.CDLL, type: GGMLType, values: np.ndarray) -> np.ndarray:
    """uint8 (blocks, bytes of a block)."""
    blocks = np.empty((len(values), type_size(type)), np.uint8)
    from_float = ggml.ggml_get_type_traits(int(type)).contents.from_float
    Convert(from_float)(values.ctypes.data, blocks.ctypes.data, values.size)
    return blocks


if __name__ == "__main__":
    main(sys.argv[1])
