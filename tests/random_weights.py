"""Stored weights of every type: random bytes where they may be any, scales of a sensible size."""

from typing import Any

import numpy as np

from pumice.gguf import CODINGS, GGMLType, block_size, row_bytes

#: Where the float16 scales of a block are, if not one at its beginning; the rest of a block may be any bytes.
FLOAT16 = {
    "Q4_1": (0, 2), "Q5_1": (0, 2), "Q8_1": (0, 2), "Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2),
    "Q6_K": (208,), "TQ1_0": (52,), "TQ2_0": (64,), "MXFP4": (), "NVFP4": (), "Q8_K": (), "IQ1_M": (),
}  # fmt: skip
FLOATS = {"F32": "<f4", "F16": "<f2", "F64": "<f8"}
INTEGERS = {"I8": "<i1", "I16": "<i2", "I32": "<i4", "I64": "<i8"}
RARE = [type.name for type in GGMLType if block_size(type) > 1 and type not in CODINGS]


def random_rows(rng: np.random.Generator, name: str, n_rows: int, n_columns: int) -> np.ndarray:
    """Stored rows of a type: uint8 (rows, bytes of a row)."""
    type = GGMLType[name]
    if name in FLOATS:
        return rng.standard_normal((n_rows, n_columns)).astype(FLOATS[name]).view(np.uint8)
    if name == "BF16":
        values = rng.standard_normal((n_rows, n_columns)).astype(np.float32)
        return (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    if name in INTEGERS:
        return rng.integers(-100, 100, (n_rows, n_columns)).astype(INTEGERS[name]).view(np.uint8)

    n_blocks = n_rows * n_columns // block_size(type)
    blocks = rng.integers(0, 256, (n_blocks, row_bytes(type, block_size(type))), dtype=np.uint8)
    for offset in FLOAT16.get(name, (0,)):
        blocks[:, offset : offset + 2] = _scales(rng, n_blocks, np.float16)
    if name == "Q8_K":
        blocks[:, :4] = _scales(rng, n_blocks, np.float32)
    if name == "IQ1_M":  # the float16 is spread over the high nibbles of four int16; its own is the last
        blocks[:, 55] = blocks[:, 55] & 15 | 0x20
    if name == "MXFP4":
        blocks[:, 0] = rng.integers(118, 126, n_blocks)
    if name == "NVFP4":
        blocks[:, :4] = rng.integers(0, 0x7F, (n_blocks, 4))
    return blocks.reshape(n_rows, -1)


def _scales(rng: np.random.Generator, n: int, dtype: Any) -> np.ndarray:
    values = rng.uniform(0.001, 0.02, (n, 1)) * rng.choice([-1, 1], (n, 1))
    return values.astype(dtype).view(np.uint8)
