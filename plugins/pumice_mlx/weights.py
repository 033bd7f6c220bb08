"""Weights on the device: dense matrices, and quantized ones in MLX's formats.

MLX's affine format has a scale and a bias for 32 columns, and codes of 2, 3, 4, 5, 6 or 8 bits in 32-bit words: a
number is ``scale * code + bias``. Every GGUF format with such codes maps to one of these, or to two:

- If 16 columns have their own scale, the codes are multiplied twice, each time by the activations of alternate groups
  of 16 columns, with their scales. On Metal a kernel multiplies few rows once (metal.py).
- If codes index a table of values, or do not have few bits, numbers become 8-bit multiples of the scale. MXFP4 has
  kernels of its own. On Metal matrices of IQ types stay as stored (iq_kernels.py).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import mlx.core as mx
import numpy as np

from pumice.plugin import GGMLType, Weight, block_size, fixed, type_size
from pumice.plugin.unstable import Coding
from pumice_mlx import few_rows, iq_kernels, metal
from pumice_mlx.fused import Fused
from pumice_mlx.unpack import Blocks, coding_of, unpack

GROUP = 32  # columns per scale, MLX's minimum
ALIGNED = 128  # bytes
CHUNK = 1 << 22  # numbers to repack at a time
FLOATS = {GGMLType.F32: mx.float32, GGMLType.F16: mx.float16, GGMLType.BF16: mx.bfloat16}
LARGEST_HALF = 65504.0

Mode = Literal["affine", "mxfp4"]
Joined = tuple["Matrix", list[tuple[int, int]]]
"""A matrix, and the first and the last row of each of its parts."""


class Matrix(ABC):
    """A weight matrix ``[m, k]``, or a stack ``[n, m, k]``. ``nbytes``: its bytes on the device."""

    nbytes: int

    @abstractmethod
    def product(self, x: mx.array) -> mx.array:
        """Map ``x [..., k]`` to ``[..., m]`` in a product's type; for a stack ``x [n, t, k]`` to ``[n, t, m]``."""

    @abstractmethod
    def gathered(self, x: mx.array, ids: mx.array, in_order: bool) -> mx.array:
        """Multiply rows ``x [..., 1, k]`` by the matrix given by ``ids [...]``: ``[..., 1, m]``.

        ``in_order``: the ids are sorted.
        """

    @abstractmethod
    def rows(self, ids: mx.array) -> mx.array:
        """Return rows of a matrix, or values of a vector, as float32."""


class Dense(Matrix):
    """Numbers in their stored type. Products use that type if activations may be rounded, else float32."""

    def __init__(self, numbers: mx.array, activations: mx.Dtype) -> None:
        self._numbers = numbers
        self._type = numbers.dtype if activations == mx.float16 else mx.float32
        self.nbytes = numbers.nbytes
        mx.eval(numbers)  # lazy arrays are bound to this thread

    def product(self, x: mx.array) -> mx.array:
        return rounded(x, self._type) @ self._numbers.astype(self._type).swapaxes(-1, -2)

    def gathered(self, x: mx.array, ids: mx.array, in_order: bool) -> mx.array:
        matrices = self._numbers.astype(self._type).swapaxes(-1, -2)
        return mx.gather_mm(rounded(x, self._type), matrices, rhs_indices=ids, sorted_indices=in_order)

    def rows(self, ids: mx.array) -> mx.array:
        return self._numbers[ids].astype(mx.float32)


@dataclass(frozen=True)
class Scales:
    """Scales and biases of the codes of each 32 columns ``[..., m, k / 32]``; MXFP4 has no biases."""

    scales: mx.array
    biases: mx.array | None


class Quantized(Matrix):
    """Codes ``[..., m, words]`` with one set of scales, or two for alternate groups of 16 columns."""

    def __init__(self, codes: mx.array, bits: int, mode: Mode, parts: list[Scales], activations: mx.Dtype) -> None:
        self.codes, self.bits, self._mode, self.parts = codes, bits, mode, parts
        self._type = activations
        is_split = len(parts) == 2 and codes.ndim == 2
        self._product = metal.product_for(bits, activations, _composed_halves) if is_split else None
        (first, *more) = parts
        is_plain = not more and mode == "affine"
        self._has_kernel = is_plain and few_rows.can_multiply(activations, codes, first.scales, first.biases, bits)
        self.nbytes = sum(array.nbytes for array in self.arrays)
        mx.eval(self.arrays)

    def product(self, x: mx.array) -> mx.array:
        if x.size == 0:  # no output row in a part of a prompt, with which MLX divides by zero
            return mx.zeros((*x.shape[:-1], self.codes.shape[-2]), x.dtype)
        if self._product and x.size <= metal.MOST_ROWS * x.shape[-1]:
            _, *scales = self.arrays
            rows = rounded(x, self._type).reshape(-1, x.shape[-1])
            return self._product(rows, self.codes, scales, self.bits).reshape(*x.shape[:-1], -1)
        n = x.size // x.shape[-1]
        if self._has_kernel and n <= few_rows.MOST_ROWS:
            rows = rounded(x, self._type).reshape(-1, x.shape[-1])
            return few_rows.multiply(rows, *self.arrays).reshape(*x.shape[:-1], -1)
        if self._has_kernel and n < few_rows.LEAST_MANY:
            rows = mx.pad(x.reshape(n, -1), [(0, few_rows.LEAST_MANY - n), (0, 0)])
            return self.product(rows)[:n].reshape(*x.shape[:-1], -1)
        ys = [
            mx.quantized_matmul(activations, self.codes, part.scales, part.biases, transpose=True, **self._format)
            for activations, part in self._split(rounded(x, self._type))
        ]
        return _sum(ys)

    def gathered(self, x: mx.array, ids: mx.array, in_order: bool) -> mx.array:
        ys = [
            mx.gather_qmm(
                activations,
                self.codes,
                part.scales,
                part.biases,
                rhs_indices=ids,
                transpose=True,
                sorted_indices=in_order,
                **self._format,
            )
            for activations, part in self._split(rounded(x, self._type))
        ]
        return _sum(ys)

    def rows(self, ids: mx.array) -> mx.array:
        parts = [
            mx.dequantize(
                self.codes[ids],
                part.scales[ids],
                None if part.biases is None else part.biases[ids],
                dtype=mx.float32,
                **self._format,
            ).astype(mx.float32)
            for part in self.parts
        ]
        return parts[0] if len(parts) == 1 else _sum([columns for columns, _ in self._split(*parts)])

    def _split(self, *xs: mx.array) -> Iterator[tuple[mx.array, Scales]]:
        """Yield the columns of each set of scales, the others 0, of one array or of one array per set."""
        if len(self.parts) == 1:
            yield xs[0], self.parts[0]
            return
        for i, part in enumerate(self.parts):
            x = xs[i % len(xs)]
            mask = mx.array([[1 - i], [i]], x.dtype)
            yield (x.reshape(*x.shape[:-1], -1, 2, GROUP // 2) * mask).reshape(x.shape), part

    @property
    def _format(self) -> dict[str, Any]:
        return {"group_size": GROUP, "bits": self.bits, "mode": self._mode}

    @property
    def arrays(self) -> list[mx.array]:
        """The codes, and the scales and biases of each part."""
        parts = [array for part in self.parts for array in (part.scales, part.biases) if array is not None]
        return [self.codes, *parts]

    def put(self, arrays: Sequence[mx.array]) -> None:
        """Take other arrays for ``arrays``."""
        self.codes, *rest = arrays
        others = iter(rest)
        self.parts = [Scales(next(others), None if part.biases is None else next(others)) for part in self.parts]

    def like(self, arrays: Sequence[mx.array]) -> Quantized:
        """Return a matrix of this format with other arrays."""
        matrix = Quantized(self.codes, self.bits, self._mode, self.parts, self._type)
        matrix.put(arrays)
        return matrix

    @property
    def format(self) -> tuple[Any, ...]:
        """The properties that the parts of one matrix share."""
        return self.bits, self._mode, [(array.dtype, array.shape[1:]) for array in self.arrays]


class Stored(Matrix):
    """Blocks of an IQ type as in the file, which kernels decode; ``shape``: of the matrix or stack."""

    def __init__(
        self, blocks: mx.array, shape: tuple[int, ...], kernels: iq_kernels.Kernels, activations: mx.Dtype
    ) -> None:
        self._blocks = blocks.reshape(math.prod(shape[:-1]), -1)
        *self._stack, self._n_rows, self._n_columns = shape
        self._kernels, self._type = kernels, activations
        self.nbytes = blocks.nbytes
        mx.eval(self._blocks)

    def product(self, x: mx.array) -> mx.array:
        if x.size == 0:
            return mx.zeros((*x.shape[:-1], self._n_rows), mx.float32)
        rows = rounded(x, self._type)
        if not self._stack and x.size <= iq_kernels.MOST_ROWS * self._n_columns:
            y = self._kernels.product(rows.reshape(-1, self._n_columns), self._blocks)
        else:
            rows = rows if self._stack else rows.reshape(1, -1, self._n_columns)
            y = mx.concatenate([(rows @ part).astype(mx.float32) for part in self._columns()], axis=-1)
        return y.reshape(*x.shape[:-1], self._n_rows)

    def gathered(self, x: mx.array, ids: mx.array, in_order: bool) -> mx.array:
        if ids.size == 0:
            return mx.zeros((*ids.shape, 1, self._n_rows), mx.float32)
        x = rounded(x, self._type)
        if ids.size <= iq_kernels.MOST_PAIRS:
            rows = mx.broadcast_to(x, (*ids.shape, 1, self._n_columns)).reshape(-1, self._n_columns)
            y = self._kernels.gathered(rows, ids.reshape(-1), self._blocks, self._n_rows)
            return y.reshape(*ids.shape, 1, self._n_rows)
        ys = [mx.gather_mm(x, part, rhs_indices=ids, sorted_indices=in_order) for part in self._columns()]
        return mx.concatenate([y.astype(mx.float32) for y in ys], axis=-1)

    def rows(self, ids: mx.array) -> mx.array:
        numbers = self._kernels.numbers(ids.reshape(-1), self._blocks, mx.float32)
        return numbers.reshape(*ids.shape, self._n_columns)

    def _columns(self) -> Iterator[mx.array]:
        """Yield some rows of each matrix at a time, transposed, as numbers ``[n, k, rows]``."""
        n = math.prod(self._stack)
        step = max(1, CHUNK // (n * self._n_columns))
        firsts = mx.arange(n)[:, None] * self._n_rows
        for first in range(0, self._n_rows, step):
            ids = firsts + mx.arange(first, min(first + step, self._n_rows))
            numbers = self._kernels.numbers(ids.reshape(-1), self._blocks, self._type)
            yield numbers.reshape(n, -1, self._n_columns).swapaxes(-1, -2)


def join(matrices: Sequence[Quantized]) -> Joined | None:
    """Make matrices parts of one matrix; return it, and the first and the last row of each; None if formats differ.

    A part starts at a multiple of ``ALIGNED`` bytes, as a matrix of its own does.
    """
    if any(matrix.codes.ndim != 2 or matrix.format != matrices[0].format for matrix in matrices):
        return None
    ends = np.cumsum([len(matrix.codes) for matrix in matrices]).tolist()
    rows = list(zip([0, *ends[:-1]], ends, strict=True))
    widths = [array.nbytes // len(array) for array in matrices[0].arrays]
    if any(first * width % ALIGNED for first, _ in rows for width in widths):
        return None
    arrays = [mx.concatenate(list(parts)) for parts in zip(*(matrix.arrays for matrix in matrices), strict=True)]
    mx.eval(arrays)
    for matrix, (first, last) in zip(matrices, rows, strict=True):
        parts = [array[first:last] for array in arrays]
        mx.eval(parts)
        matrix.put(parts)
    return matrices[0].like(arrays), rows


def _composed_halves(x: mx.array, codes: mx.array, scales: list[mx.array], bits: int) -> mx.array:
    """Compute what ``metal.multiply`` does by MLX's operations."""
    numbers = [
        mx.dequantize(codes, *pair, group_size=GROUP, bits=bits).reshape(len(codes), -1, 2, GROUP // 2)[:, :, i]
        for i, pair in enumerate(_pairs(scales))
    ]
    matrix = mx.stack(numbers, axis=2).reshape(len(codes), -1)
    return x.astype(mx.float32) @ matrix.astype(mx.float32).T


def rounded(x: mx.array, type: mx.Dtype) -> mx.array:
    """Round activations to the type of a product; values beyond float16 saturate."""
    if x.dtype == type:
        return x
    return _in_half(x) if type == mx.float16 else x.astype(type)


@Fused
def _in_half(x: mx.array) -> mx.array:
    return mx.clip(x, -LARGEST_HALF, LARGEST_HALF).astype(mx.float16)


def in_float32(operand: Any) -> Any:
    """Return an array of rounded numbers as float32, and any other operand unchanged."""
    is_rounded = isinstance(operand, mx.array) and operand.dtype in (mx.float16, mx.bfloat16)
    return operand.astype(mx.float32) if is_rounded else operand


def _sum(ys: list[mx.array]) -> mx.array:
    if len(ys) == 1:
        return ys[0]
    first, second = (y.astype(mx.float32) for y in ys)
    return first + second


def can_multiply(weight: Weight) -> bool:
    """Return True if a weight can be a ``Matrix``."""
    return block_size(weight.type) == 1 or fixed(weight.shape)[-1] % GROUP == 0


def matrix_bytes(weight: Weight, activations: mx.Dtype) -> int:
    """Return the bytes of a weight on the device."""
    n = math.prod(fixed(weight.shape))
    if block_size(weight.type) == 1:
        return n * (type_size(weight.type) if weight.type in FLOATS else 4)
    if _stored_kernels(weight):
        return n // block_size(weight.type) * type_size(weight.type)
    coding = coding_of(weight.type)
    bits, mode = _format(coding)
    per_group = 1 if mode == "mxfp4" else GROUP // coding.scale_columns * 2 * activations.size
    return n * bits // 8 + n // GROUP * per_group


def load_matrix(weight: Weight, activations: mx.Dtype) -> Matrix:
    """Copy a weight to the device. ``activations``: type of activations in products, float32 or float16."""
    if block_size(weight.type) == 1:
        return Dense(load_numbers(weight), activations)
    if kernels := _stored_kernels(weight):
        return Stored(mx.array(np.ascontiguousarray(weight.data)), fixed(weight.shape), kernels, activations)
    shape, coding = fixed(weight.shape), coding_of(weight.type)
    bits, mode = _format(coding)
    data = weight.data.reshape(-1, shape[-1] // block_size(weight.type), type_size(weight.type))
    step = max(1, CHUNK // shape[-1])
    chunks = []
    for first in range(0, len(data), step):
        blocks = mx.array(np.ascontiguousarray(data[first : first + step]))
        chunk = _repack(blocks, weight.type, coding, bits, mode, activations)
        mx.eval(chunk)
        chunks.append(chunk)
    arrays = [
        mx.concatenate(list(arrays_of_part)).reshape(*shape[:-1], -1) for arrays_of_part in zip(*chunks, strict=True)
    ]
    codes, *scales = arrays
    parts = [Scales(scales[0], None)] if mode == "mxfp4" else [Scales(*pair) for pair in _pairs(scales)]
    return Quantized(codes, bits, mode, parts, activations)


def _stored_kernels(weight: Weight) -> iq_kernels.Kernels | None:
    """Return the kernels for a weight that stays as stored: a matrix, or a stack of them."""
    return iq_kernels.kernels_for(weight.type) if len(weight.shape) > 1 else None


def load_numbers(weight: Weight) -> mx.array:
    """Copy a weight to the device as plain numbers, float32 unless it is stored in another float type."""
    if weight.type not in FLOATS:
        return mx.array(np.ascontiguousarray(weight.dequantize(), np.float32))
    stored = mx.array(np.ascontiguousarray(weight.data).reshape(-1))
    return stored.view(FLOATS[weight.type]).reshape(fixed(weight.shape))


def _format(coding: Coding) -> tuple[int, Mode]:
    """Return the bits of a code, and MLX's name of the format."""
    if coding.scales == "e8m0":
        return 4, "mxfp4"
    return (8 if coding.values else coding.bits), "affine"


def _repack(
    blocks: mx.array, type: GGMLType, coding: Coding, bits: int, mode: Mode, activations: mx.Dtype
) -> list[mx.array]:
    """Repack rows of blocks ``[m, blocks, bytes]`` for MLX: codes, then scales and biases, once or twice."""
    m = len(blocks)
    unpacked = unpack(blocks.reshape(-1, blocks.shape[-1]), type)
    if mode == "mxfp4":
        return [packed(unpacked.codes.reshape(m, -1), bits), blocks[:, :, 0]]
    codes, offset = unpacked.codes, coding.offset + (128 if coding.bits == 8 else 0)
    if coding.values:
        codes, offset = mx.array([value + 128 for value in coding.values], mx.uint8)[codes], 128
    parts = []
    for scales, biases in _halves(unpacked, offset, GROUP // coding.scale_columns):
        parts += [values.reshape(m, -1).astype(activations) for values in (scales, biases)]
    return [packed(codes.reshape(m, -1), bits), *parts]


def _halves(unpacked: Blocks, offset: int, n_parts: int) -> Iterator[tuple[mx.array, mx.array]]:
    """Yield scales and biases, separately for alternate groups if groups have 16 columns."""
    biases = -offset * unpacked.scales + (0 if unpacked.minimums is None else unpacked.minimums)
    for i in range(n_parts):
        yield unpacked.scales[:, i::n_parts], biases[:, i::n_parts]


def packed(codes: mx.array, bits: int) -> mx.array:
    """Pack codes ``[m, k]`` without gaps, lowest bits first, into 32-bit words."""
    eight = codes.reshape(len(codes), -1, 8).astype(mx.uint64)
    shifts = mx.array([bits * i for i in range(8)], mx.uint64)
    # The bits are disjoint, so the sum is their union.
    words = mx.sum(eight << shifts, axis=-1, keepdims=True).astype(mx.uint64)
    return mx.contiguous(words.view(mx.uint8)[..., :bits]).reshape(len(codes), -1).view(mx.uint32)


def _pairs(arrays: list[mx.array]) -> Iterator[tuple[mx.array, mx.array]]:
    return zip(arrays[::2], arrays[1::2], strict=True)


class Weights:
    """The weights of one model; each range of rows of a source is loaded once."""

    def __init__(self, activations: mx.Dtype) -> None:
        self.activations = activations
        self._matrices: dict[Hashable, Matrix] = {}
        self._arrays: dict[Hashable, mx.array] = {}
        self._joined: dict[tuple[Hashable, ...], Joined] = {}

    @property
    def nbytes(self) -> int:
        held: list[Matrix | mx.array] = [*self._matrices.values(), *self._arrays.values()]
        return sum(array.nbytes for array in held)

    def matrix(self, weight: Weight) -> Matrix:
        """Return a weight for products or lookups of rows."""
        key = _key(weight)
        if key not in self._matrices:
            self._matrices[key] = load_matrix(weight, self.activations)
            weight.source.release()
        return self._matrices[key]

    def join(self, weights: Sequence[Weight]) -> Joined | None:
        """Make matrices parts of one matrix; return it, and the first and the last row of each part.

        Returns None if their formats differ, or one is a part of another matrix already.
        """
        key = tuple(_key(weight) for weight in weights)
        if key not in self._joined:
            matrices = [self.matrix(weight) for weight in weights]
            quantized = [matrix for matrix in matrices if isinstance(matrix, Quantized)]
            others = {part for parts in self._joined for part in parts}
            is_possible = len(quantized) == len(set(key)) == len(key) and others.isdisjoint(key)
            joined = join(quantized) if is_possible else None
            if not joined:
                return None
            self._joined[key] = joined
        return self._joined[key]

    def array(self, weight: Weight) -> mx.array:
        """Return a small weight as float32."""
        key = _key(weight)
        if key not in self._arrays:
            self._arrays[key] = mx.array(np.ascontiguousarray(weight.dequantize(), np.float32))
        return self._arrays[key]


def _key(weight: Weight) -> Hashable:
    return weight.source, weight.first_row, weight.shape
