"""The key/value cache of a layer: rows in cells, in the types of ``KV_TYPES``.

MLX copies an array that a step writes to if the device may still read it for the step before, so that each step that is
submitted ahead copies all caches. Arrays therefore have only the blocks that were used so far, and grow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from pumice.plugin import GGMLType
from pumice.plugin.unstable import CODINGS, KV_TYPES, KVState, Limits
from pumice_mlx.weights import FLOATS, GROUP, packed

FIRST_CELLS = 2048  # of a new cache, which grows to twice its size
MOST_PIECES = 8  # of a span, up to which it is joined from slices


@dataclass(frozen=True)
class Span:
    """Consecutive positions of a sequence: ``n`` from the cell ``skipped`` of the first of its ``blocks``."""

    blocks: NDArray[np.integer]
    skipped: int
    n: int
    block_size: int

    @cached_property
    def pieces(self) -> list[tuple[int, int]]:
        """The first cell, and the one after the last, of each run of blocks that follow each other."""
        ends = [*(np.flatnonzero(np.diff(self.blocks) != 1) + 1).tolist(), len(self.blocks)]
        pieces, done = [], 0
        for begin, end in zip([0, *ends[:-1]], ends, strict=True):
            skipped = 0 if begin else self.skipped
            n = min((end - begin) * self.block_size - skipped, self.n - done)
            first = int(self.blocks[begin]) * self.block_size + skipped
            pieces.append((first, first + n))
            done += n
        return pieces

    @cached_property
    def blocks_on_device(self) -> mx.array:
        """The blocks ``[1, b]``, copied for all layers once: a copy may wait for the device."""
        return mx.array(self.blocks)[None]


class KVCache:
    """The keys and values of one layer.

    Attributes:
        arrived: counters of a kernel's parts, zeros between steps.
    """

    def __init__(self, state: KVState, limits: Limits) -> None:
        type = KV_TYPES[limits.kv_type]
        self.window = state.window
        self.is_memory = state.is_memory
        self.block_size = limits.block_size
        self.n_heads = state.n_head_kv
        self._n_blocks = limits.n_blocks[state.window]
        n_blocks = self._n_blocks if self.is_memory else min(self._n_blocks, -(-FIRST_CELLS // self.block_size))
        widths = [state.n_head_kv * dim for dim in (state.k_dim, state.v_dim) if dim]
        self.arrived = mx.zeros((0,), mx.uint32)
        self._rows = [_new_rows(type, n_blocks, limits.block_size, width) for width in widths]

    @property
    def arrays(self) -> list[mx.array]:
        return [array for rows in self._rows for array in rows.arrays]

    def put(self, arrays: Sequence[mx.array]) -> None:
        """Take other arrays for ``arrays``."""
        rest = iter(arrays)
        for rows in self._rows:
            rows.arrays = [next(rest) for _ in rows.arrays]

    @property
    def plain(self) -> tuple[mx.array, mx.array] | None:
        """Keys and values ``[cells, heads * d]`` if they are plain numbers of one width; else None."""
        pairs = [rows.arrays for rows in self._rows]
        if [len(arrays) for arrays in pairs] != [1, 1] or pairs[0][0].shape != pairs[1][0].shape:
            return None
        return pairs[0][0], pairs[1][0]

    def prepare(self, n_parts: int) -> None:
        """Make the counters of a kernel that works in parts."""
        if len(self.arrived) < n_parts:
            self.arrived = mx.zeros((n_parts,), mx.uint32)
            mx.eval(self.arrived)

    def reserve(self, n_blocks: int) -> None:
        """Make room for the first ``n_blocks`` blocks."""
        n_cells = len(self.arrays[0])
        if n_blocks * self.block_size <= n_cells:
            return
        more = min(max(n_blocks, 2 * n_cells // self.block_size), self._n_blocks) * self.block_size - n_cells
        grown = [mx.concatenate([x, mx.zeros((more, *x.shape[1:]), x.dtype)]) for x in self.arrays]
        mx.eval(grown)
        self.put(grown)

    def clear(self) -> None:
        for rows in self._rows:
            rows.arrays = [mx.zeros(array.shape, array.dtype) for array in rows.arrays]
        self.arrived = mx.zeros(self.arrived.shape, mx.uint32)
        mx.eval(self.arrived)

    def write(self, cells: mx.array, k: mx.array, v: mx.array | None) -> None:
        """Store rows ``[t, heads, d]`` in ``cells [t]``."""
        for rows, x in zip(self._rows, (k, v), strict=False):
            if x is not None:
                rows.write(cells, x.reshape(len(x), -1))

    def read(self, blocks: mx.array, v_dim: int, type: mx.Dtype) -> tuple[mx.array, mx.array]:
        """Return the keys and values ``[n, heads, cells, d]`` of the blocks ``[n, b]``."""
        return self._of_heads([rows.read(blocks, type) for rows in self._rows], v_dim)

    def read_span(self, span: Span, v_dim: int, type: mx.Dtype) -> tuple[mx.array, mx.array]:
        """Return the keys and values ``[1, heads, n, d]`` of a span; of plain numbers in place if possible."""
        return self._of_heads([rows.read_span(span, type) for rows in self._rows], v_dim)

    def _of_heads(self, read: Sequence[mx.array], v_dim: int) -> tuple[mx.array, mx.array]:
        keys, *values = (x.reshape(len(x), -1, self.n_heads, x.shape[-1] // self.n_heads).swapaxes(1, 2) for x in read)
        return keys, values[0] if values else keys[..., :v_dim]


class _Rows:
    """Plain numbers ``[cells, width]``."""

    def __init__(self, n_blocks: int, block_size: int, width: int, type: mx.Dtype) -> None:
        self.width = width
        self._block_size = block_size
        self.arrays = [mx.zeros((n_blocks * block_size, width), type)]

    def write(self, cells: mx.array, x: mx.array) -> None:
        self.arrays[0][cells] = x.astype(self.arrays[0].dtype)

    def read(self, blocks: mx.array, type: mx.Dtype) -> mx.array:
        """``[n, cells, width]``."""
        return self._blocks(self.arrays[0], blocks).astype(type)

    def read_span(self, span: Span, type: mx.Dtype) -> mx.array:
        """``[1, n, width]``."""
        if len(span.pieces) > MOST_PIECES:
            return self.read(span.blocks_on_device, type)[:, span.skipped : span.skipped + span.n]
        pieces = [self._cells(first, end, type) for first, end in span.pieces]
        return pieces[0] if len(pieces) == 1 else mx.concatenate(pieces, axis=1)

    def _cells(self, first: int, end: int, type: mx.Dtype) -> mx.array:
        """Consecutive cells in place: ``[1, n, width]``."""
        return self.arrays[0][first:end][None].astype(type)

    def _blocks(self, array: mx.array, blocks: mx.array) -> mx.array:
        n = len(blocks)
        return array.reshape(-1, self._block_size, array.shape[-1])[blocks].reshape(n, -1, array.shape[-1])


class _CodedRows(_Rows):
    """Packed codes of a few bits with a scale and a bias per 32, rounded as in ``gguf.quants``."""

    def __init__(self, n_blocks: int, block_size: int, width: int, type: GGMLType) -> None:
        self.width = width
        self._block_size = block_size
        self._coding = CODINGS[type]
        n_cells, n_groups = n_blocks * block_size, width // GROUP
        words = mx.zeros((n_cells, n_groups * self._coding.bits), mx.uint32)
        self.arrays = [words, *(mx.zeros((n_cells, n_groups), mx.float16) for _ in range(2))]

    def write(self, cells: mx.array, x: mx.array) -> None:
        codes, scale, bias = self._encode(x.reshape(len(x), -1, GROUP))
        stored = (packed(codes.reshape(len(x), -1), self._coding.bits), scale[..., 0], bias[..., 0])
        for array, values in zip(self.arrays, stored, strict=True):
            array[cells] = values.astype(array.dtype)

    def read(self, blocks: mx.array, type: mx.Dtype) -> mx.array:
        return self._numbers([self._blocks(array, blocks) for array in self.arrays], type)

    def _cells(self, first: int, end: int, type: mx.Dtype) -> mx.array:
        return self._numbers([array[first:end][None] for array in self.arrays], type)

    def _numbers(self, arrays: list[mx.array], type: mx.Dtype) -> mx.array:
        words, scale, bias = arrays
        x = mx.dequantize(
            words, scale.astype(mx.float32), bias.astype(mx.float32), group_size=GROUP, bits=self._coding.bits
        )
        return x.astype(type)

    def _encode(self, x: mx.array) -> tuple[mx.array, mx.array, mx.array]:
        """Return codes ``[t, groups, 32]``, and scales and biases ``[t, groups, 1]``, exact in float16."""
        coding = self._coding
        if coding.has_minimum:
            low = mx.min(x, axis=-1, keepdims=True)
            scale = (mx.max(x, axis=-1, keepdims=True) - low) / (2**coding.bits - 1)
            return _truncated((x - low) * _inverse(scale) + 0.5, coding.bits), _half(scale), _half(low)
        if coding.bits == 8:
            scale = mx.max(mx.abs(x), axis=-1, keepdims=True) / 127
            codes = _away_from_zero(x * _inverse(scale)) + 128
            return codes.astype(mx.uint8), _half(scale), _half(scale) * -128
        largest = mx.take_along_axis(x, mx.argmax(mx.abs(x), axis=-1, keepdims=True), axis=-1)
        scale = largest / -coding.offset
        codes = _truncated(x * _inverse(scale) + (coding.offset + 0.5), coding.bits)
        return codes, _half(scale), _half(scale) * -coding.offset


def _half(x: mx.array) -> mx.array:
    return x.astype(mx.float16).astype(mx.float32)


def _inverse(scale: mx.array) -> mx.array:
    return mx.where(scale == 0, 0, 1 / scale)


def _truncated(x: mx.array, bits: int) -> mx.array:
    return mx.clip(mx.floor(x), 0, 2**bits - 1).astype(mx.uint8)


def _away_from_zero(x: mx.array) -> mx.array:
    """Round to the nearest integer, halves away from zero."""
    magnitude = mx.abs(x)
    whole = mx.floor(magnitude)
    return mx.sign(x) * (whole + mx.floor(2 * (magnitude - whole)))


def _new_rows(type: GGMLType, n_blocks: int, block_size: int, width: int) -> _Rows:
    if type in FLOATS:
        return _Rows(n_blocks, block_size, width, FLOATS[type])
    return _CodedRows(n_blocks, block_size, width, type)


def state_bytes(state: KVState, limits: Limits) -> int:
    """Return the bytes of a layer's cache."""
    type = KV_TYPES[limits.kv_type]
    bytes_of_32 = GROUP * FLOATS[type].size if type in FLOATS else 4 * CODINGS[type].bits + 4
    n_values = state.n_head_kv * (state.k_dim + state.v_dim)
    return limits.n_blocks[state.window] * limits.block_size * n_values * bytes_of_32 // GROUP
