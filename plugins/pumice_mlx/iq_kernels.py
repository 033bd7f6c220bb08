"""Metal kernels for matrices of IQ types, which stay on the device as stored: 1.6 to 4.5 bits for a number.

MLX has no format for them, and composed of its operations (unpack.py) a number takes 8 bits and a share of the scales.
No Apple GPU was at hand when this was written: the kernels have run as C++ only, in the tests, and are used only where
small products on the machine are right.
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from pumice.plugin import GGMLType, block_size, dequantize, type_size
from pumice.plugin.unstable import CODINGS
from pumice_mlx.device import is_gpu

OCTET = 8  # columns that an invocation decodes at a time
LANES, SUBGROUPS = (
    32,
    4,
)  # invocations of a SIMD group, which computes a row's results, and SIMD groups of a threadgroup
MOST_ROWS = 8  # rows of x of a kernel; more are multiplied by a matrix of decoded numbers
MOST_PAIRS = 64  # the same of pairs of a row and an expert, each of which decodes its matrix

HEADER = """
uint pair_at(const device uint8_t* bytes) { return uint(bytes[0]) | uint(bytes[1]) << 8; }
uint word_at(const device uint8_t* bytes) { return pair_at(bytes) | pair_at(bytes + 2) << 16; }
float half_at(const device uint8_t* bytes) { return float(as_type<half>(ushort(pair_at(bytes)))); }
uint nibble_at(const device uint8_t* bytes, uint i) { return uint(bytes[i / 2]) >> (4 * (i % 2)) & 15; }

// Signs of eight numbers from seven bits: an even number of them is negative.
uint signs_of(uint bits) { return bits | (uint(popcount(bits)) & 1) << 7; }

void fill(const device int8_t* entry, uint first, uint count, float scale, uint signs, float shift, thread float* v) {
    for (uint i = 0; i < count; i++) {
        const float value = scale * (float(entry[i]) + shift);
        v[first + i] = signs >> (first + i) & 1 ? -value : value;
    }
}

// Decode columns 8 i to 8 i + 7 of a block.
void octet(const device uint8_t* block, const device int8_t* table, uint i, thread float* v) {
    const uint group = i / 4, part = i % 4;  // of 32 columns, and of 8
    OCTET
}
"""

PRODUCT = """
    const uint lane = thread_position_in_grid.x, row = thread_position_in_grid.y;
    float sums[TOKENS];
    for (uint token = 0; token < TOKENS; token++) sums[token] = 0;
    for (uint i = lane; i < BLOCKS * PER_BLOCK; i += 32) {
        float v[8];
        octet(blocks + (ulong(row) * BLOCKS + i / PER_BLOCK) * BYTES, table, i % PER_BLOCK, v);
        for (uint token = 0; token < TOKENS; token++) {
            float dot = 0;
            for (uint c = 0; c < 8; c++) dot += v[c] * float(x[(token * BLOCKS * PER_BLOCK + i) * 8 + c]);
            sums[token] += dot;
        }
    }
    for (uint token = 0; token < TOKENS; token++) {
        const float sum = simd_sum(sums[token]);
        if (lane == 0) y[token * ROWS + row] = sum;
    }
"""

GATHERED = """
    const uint lane = thread_position_in_grid.x, row = thread_position_in_grid.y, pair = thread_position_in_grid.z;
    const ulong first = (ulong(ids[pair]) * ROWS + row) * BLOCKS;
    float sum = 0;
    for (uint i = lane; i < BLOCKS * PER_BLOCK; i += 32) {
        float v[8];
        octet(blocks + (first + i / PER_BLOCK) * BYTES, table, i % PER_BLOCK, v);
        for (uint c = 0; c < 8; c++) sum += v[c] * float(x[(pair * BLOCKS * PER_BLOCK + i) * 8 + c]);
    }
    sum = simd_sum(sum);
    if (lane == 0) y[pair * ROWS + row] = sum;
"""

NUMBERS = """
    const uint i = thread_position_in_grid.x, row = thread_position_in_grid.y;
    float v[8];
    octet(blocks + (ulong(ids[row]) * BLOCKS + i / PER_BLOCK) * BYTES, table, i % PER_BLOCK, v);
    for (uint c = 0; c < 8; c++) y[(ulong(row) * BLOCKS * PER_BLOCK + i) * 8 + c] = v[c];
"""

_SCALES_OF_16 = "0.25f * half_at(block) * (0.5f + float(nibble_at(block + {at}, i / 2)))"
_NIBBLES = """
    for (uint c = 0; c < 8; c++) v[c] = scale * float(table[uint(codes[i % 2 * 8 + c]) >> (i / 2 % 2 * 4) & 15]);
"""
OCTETS = {
    GGMLType.IQ2_XXS: """
    const uint word = word_at(block + 2 + 8 * group + 4);
    const float scale = 0.25f * half_at(block) * (0.5f + float(word >> 28));
    fill(table + 8 * uint(block[2 + 8 * group + part]), 0, 8, scale, signs_of(word >> (7 * part) & 127), 0, v);
""",
    GGMLType.IQ2_XS: f"""
    const uint code = pair_at(block + 2 + 2 * i);
    fill(table + 8 * (code & 511), 0, 8, {_SCALES_OF_16.format(at=66)}, signs_of(code >> 9), 0, v);
""",
    GGMLType.IQ2_S: f"""
    const uint code = uint(block[2 + i]) | (uint(block[66 + group]) >> (2 * part) & 3) << 8;
    fill(table + 8 * code, 0, 8, {_SCALES_OF_16.format(at=74)}, uint(block[34 + i]), 0, v);
""",
    GGMLType.IQ3_XXS: """
    const uint word = word_at(block + 66 + 4 * group), signs = signs_of(word >> (7 * part) & 127);
    const float scale = 0.5f * half_at(block) * (0.5f + float(word >> 28));
    for (uint h = 0; h < 2; h++) fill(table + 4 * uint(block[2 + 2 * i + h]), 4 * h, 4, scale, signs, 0, v);
""",
    GGMLType.IQ3_S: """
    const float scale = half_at(block) * float(1 + 2 * nibble_at(block + 106, group));
    for (uint h = 0; h < 2; h++) {
        const uint code = uint(block[2 + 2 * i + h]) | (uint(block[66 + group]) >> (2 * part + h) & 1) << 8;
        fill(table + 4 * code, 4 * h, 4, scale, uint(block[74 + i]), 0, v);
    }
""",
    GGMLType.IQ1_S: """
    const uint bits = pair_at(block + 34 + 2 * group);
    const float scale = half_at(block) * float(2 * (bits >> 12 & 7) + 1), shift = bits >> 15 ? -0.125f : 0.125f;
    fill(table + 8 * (uint(block[2 + i]) | (bits >> (3 * part) & 7) << 8), 0, 8, scale, 0, shift, v);
""",
    GGMLType.IQ1_M: """
    const device uint8_t* scales = block + 48;  // the high nibbles of four words are a float16
    const uint d = pair_at(scales) >> 12 | (pair_at(scales + 2) >> 8 & 0xF0) | (pair_at(scales + 4) >> 4 & 0xF00)
                   | (pair_at(scales + 6) & 0xF000);
    const uint bits = nibble_at(block + 32, i), of_16 = pair_at(scales + 2 * (i / 8)) >> (3 * (i / 2 % 4)) & 7;
    const float scale = float(as_type<half>(ushort(d))) * float(2 * of_16 + 1), shift = bits >> 3 ? -0.125f : 0.125f;
    fill(table + 8 * (uint(block[i]) | (bits & 7) << 8), 0, 8, scale, 0, shift, v);
""",
    GGMLType.IQ4_NL: f"""
    const float scale = half_at(block);
    const device uint8_t* codes = block + 2;
    {_NIBBLES}
""",
    GGMLType.IQ4_XS: f"""
    const uint of_32 = nibble_at(block + 4, group) | (pair_at(block + 2) >> (2 * group) & 3) << 4;
    const float scale = half_at(block) * (float(of_32) - 32.0f);
    const device uint8_t* codes = block + 8 + 16 * group;
    {_NIBBLES}
""",
}
"""How each type decodes eight columns, from blocks as ggml has them (`ggml-common.h`)."""

logger = logging.getLogger("pumice")


class Kernels:
    """The kernels of one type."""

    def __init__(self, type: GGMLType) -> None:
        self._type = type
        self._table = mx.array(_table(type))
        self._per_block = block_size(type) // OCTET
        header = HEADER.replace("OCTET", OCTETS[type])

        def kernel(name: str, source: str, inputs: Sequence[str]) -> Any:
            names = [*inputs, "blocks", "table"]
            name = f"pumice_{name}_{type.name.lower()}"
            return mx.fast.metal_kernel(name=name, input_names=names, output_names=["y"], source=source, header=header)

        self._product = kernel("product", PRODUCT, ["x"])
        self._gathered = kernel("gathered", GATHERED, ["x", "ids"])
        self._numbers = kernel("numbers", NUMBERS, ["ids"])
        mx.eval(self._table)  # lazy arrays are bound to this thread

    def product(self, x: mx.array, blocks: mx.array) -> mx.array:
        """Map up to ``MOST_ROWS`` rows ``x [t, k]`` to float32 ``[t, m]``; ``blocks``: uint8 ``[m, bytes]``."""
        (y,) = self._product(
            inputs=[x, blocks, self._table],
            template=[("ROWS", len(blocks)), ("TOKENS", len(x)), *self._template(blocks)],
            grid=(LANES, len(blocks), 1),
            threadgroup=(LANES, SUBGROUPS, 1),
            output_shapes=[(len(x), len(blocks))],
            output_dtypes=[mx.float32],
        )
        return y

    def gathered(self, x: mx.array, ids: mx.array, blocks: mx.array, n_rows: int) -> mx.array:
        """Multiply each row ``x [p, k]`` by a matrix of ``n_rows`` rows, the one of ``ids [p]``: float32 ``[p, m]``."""
        (y,) = self._gathered(
            inputs=[x, ids.astype(mx.uint32), blocks, self._table],
            template=[("ROWS", n_rows), *self._template(blocks)],
            grid=(LANES, n_rows, len(x)),
            threadgroup=(LANES, SUBGROUPS, 1),
            output_shapes=[(len(x), n_rows)],
            output_dtypes=[mx.float32],
        )
        return y

    def numbers(self, ids: mx.array, blocks: mx.array, type: mx.Dtype) -> mx.array:
        """Return the rows ``ids [n]`` of a matrix as numbers ``[n, k]``."""
        n_octets = blocks.shape[1] // type_size(self._type) * self._per_block
        if ids.size == 0:
            return mx.zeros((0, n_octets * OCTET), type)
        (y,) = self._numbers(
            inputs=[ids.astype(mx.uint32), blocks, self._table],
            template=self._template(blocks),
            grid=(n_octets, len(ids), 1),
            threadgroup=(math.gcd(n_octets, LANES * SUBGROUPS), 1, 1),
            output_shapes=[(len(ids), n_octets * OCTET)],
            output_dtypes=[type],
        )
        return y

    def _template(self, blocks: mx.array) -> list[tuple[str, int]]:
        n_bytes = type_size(self._type)
        return [("BLOCKS", blocks.shape[1] // n_bytes), ("PER_BLOCK", self._per_block), ("BYTES", n_bytes)]


def _table(type: GGMLType) -> np.ndarray:
    """Return the numbers that codes stand for, int8: rows of 8 or 4 of them, or single ones."""
    if type in CODINGS:
        return np.array(CODINGS[type].values, np.int8)
    from gguf import quants

    decoder = getattr(quants, "IQ1_S" if type == GGMLType.IQ1_M else type.name)
    decoder.init_grid()
    return decoder.grid.reshape(decoder.grid_shape).astype(np.int8)


@functools.cache
def kernels_for(type: GGMLType) -> Kernels | None:
    """Return the kernels of a type where they are right on this machine: products are those of the core's decoder."""
    if type not in OCTETS or not mx.metal.is_available() or not is_gpu():
        return None
    try:
        kernels = Kernels(type)
        if all(_is_right(kernels, type, n_tokens) for n_tokens in (1, 3)):
            return kernels
        logger.info("mlx: the kernels for %s are not used, since their results are wrong", type.name)
    except (RuntimeError, ValueError, TypeError) as error:
        logger.info("mlx: the kernels for %s are not used: %s", type.name, error)
    return None


def _is_right(kernels: Kernels, type: GGMLType, n_tokens: int) -> bool:
    """Compare results for random blocks with the core's."""
    n_rows, n_columns = 38, 5 * block_size(type)
    rng = np.random.default_rng(n_tokens)
    stored = rng.integers(0, 256, (n_rows, 5, type_size(type)), np.uint8)
    if type == GGMLType.IQ1_M:
        stored[:, :, 55] = stored[:, :, 55] & 15 | 0x20  # its scale is in high nibbles
    else:
        stored[:, :, :2] = np.frombuffer(np.float16(0.01).tobytes(), np.uint8)
    stored = stored.reshape(n_rows, -1)
    numbers, x = dequantize(stored, type), rng.standard_normal((n_tokens, n_columns)).astype(np.float32)
    blocks, ids, half = mx.array(stored), mx.array(np.arange(n_rows - 1, -1, -1)), n_rows // 2
    actual = (
        kernels.product(mx.array(x), blocks),
        kernels.numbers(ids, blocks, mx.float32),
        kernels.gathered(mx.array(x), mx.array(np.arange(n_tokens) % 2), blocks, half),
    )
    by_half = np.stack([x[i] @ numbers[i % 2 * half :][:half].T for i in range(n_tokens)])
    pairs = zip(map(np.array, actual), (x @ numbers.T, numbers[::-1], by_half), strict=True)
    return all(float(np.abs(a - e).max()) <= 1e-4 * float(np.abs(e).max()) for a, e in pairs)
