"""Sizes of workgroups: measured where possible (bench/vulkan_*.py), else chosen to be safe."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from pumice_vulkan.device import Device
from pumice_vulkan.formats import Format


@dataclass(frozen=True)
class VectorShape:
    """How shaders/matvec.comp shares out its work: its first specialization constants."""

    lanes: int
    groups: int
    rows: int
    unroll: int = 1
    prefetch: bool = False

    @property
    def invocations(self) -> int:
        return self.lanes * self.groups


@dataclass(frozen=True)
class TileShape:
    """How shaders/matmul_cooperative.comp does: rows of the matrix and of x in a tile, subgroups, columns at a time."""

    m: int
    n: int
    warps_m: int
    warps_n: int
    k: int = 64

    def shared_bytes(self) -> int:
        return (self.m + self.n) * (self.k + 8) * 2


LANES = 32  # of a subgroup on the device measured
LONG_ROW = 192  # blocks of a row from which on two subgroups share it
MANY_ROWS = 12288  # rows of a matrix from which on workgroups take more of them
LONG_CONTEXT = 4096  # positions
SHORT_ROW = 64  # blocks of a row up to which workgroups that leave int8 are faster than another dispatch for it
PROCESSORS = 128  # workgroups that a large device runs at once


def vector_shape(
    device: Device, n_rows: int, row_blocks: int, n_tokens: int, format: Format, paired: bool = False
) -> VectorShape:
    """For a product of ``n_rows`` rows of so many blocks with ``n_tokens`` vectors; within a few percent of the best
    that an H200 was measured with for Q4_0, Q4_K, Q6_K and Q8_0."""
    if format.dense:
        shape = _dense_shape(device, row_blocks, n_tokens)
    elif row_blocks >= LONG_ROW:
        shape = VectorShape(64, (4, 2, 1)[(n_tokens > 1) + (n_tokens > 4)], 4, prefetch=True)
    elif n_tokens > 4:
        shape = VectorShape(32, 4, 2)
    elif n_rows >= MANY_ROWS or paired:
        shape = VectorShape(32, 8, 4, prefetch=n_tokens > 1)
    elif n_tokens > 1:
        shape = VectorShape(32, 8, 2)
    elif len(format.words) > 1 and row_blocks > LANES:
        shape = VectorShape(64, 4, 4)
    else:
        shape = VectorShape(32, 8, 2, 2 if row_blocks > LANES else 1)
    lanes = max(shape.lanes, device.subgroup_size)
    return dataclasses.replace(shape, lanes=lanes, groups=max(1, shape.invocations // lanes))


def of_whole_blocks(device: Device, shape: VectorShape, row_blocks: int) -> VectorShape | None:
    """The shape with as many groups as make whole blocks of 32 results of two matrices each; None: too many."""
    if row_blocks > SHORT_ROW:
        return None
    while shape.groups * (shape.rows // 2) % 32:
        shape = dataclasses.replace(shape, groups=2 * shape.groups)
    return shape if shape.invocations <= min(512, device.description.max_threads_per_threadgroup) else None


def _dense_shape(device: Device, row_blocks: int, n_tokens: int) -> VectorShape:
    lanes = device.subgroup_size
    while 2 * lanes <= min(256, row_blocks // 2):
        lanes *= 2
    unroll = 2 if lanes < row_blocks and n_tokens <= 2 else 1
    return VectorShape(lanes, max(1, 128 // lanes), 4 if n_tokens <= 4 else 2, unroll)


TILES = [TileShape(128, 128, 2, 2), TileShape(64, 128, 2, 2), TileShape(64, 64, 2, 2), TileShape(64, 32, 4, 1)]


def tile_shape(device: Device, n_rows: int, n_tokens: int) -> TileShape:
    """For a product of ``n_rows`` rows with ``n_tokens`` vectors on matrix units: the largest tiles that are not mostly
    empty, of which there are nearly enough for the device."""
    for shape in TILES:
        n_tiles = -(-n_rows // shape.m) * -(-n_tokens // shape.n)
        enough = shape.n < 2 * n_tokens and 8 * n_tiles >= 7 * PROCESSORS
        if enough and shape.shared_bytes() <= device.threadgroup_memory_bytes:
            return shape
    return TileShape(32, 32, 2, 1)


@dataclass(frozen=True)
class FewShape:
    """How shaders/matmul_few.comp does: subgroups along the rows and the columns, fragments and columns of each."""

    parts_m: int
    parts_k: int
    fragments_m: int
    k: int = 64
    depth: int = 1  # times k columns that are on their way at once
    early: bool = True

    def shared_bytes(self, unit: int) -> int:
        region = max(self.fragments_m * unit * (self.k // 8 + 1), unit * unit // 2)
        return 16 * self.parts_m * self.parts_k * region + 1024


def few_shape(device: Device, n_rows: int, n_columns: int, n_tokens: int, paired: bool) -> FewShape | None:
    """For a product of ``n_rows`` rows of so many columns with some vectors; None where larger tiles are faster."""
    if paired:
        shape = FewShape(2, 2, 2, early=False) if n_tokens <= 16 else FewShape(1, 4, 4, 32)
    elif n_rows >= MANY_ROWS:
        if n_tokens > 16:
            return None
        shape = FewShape(2, 2, 1, early=False)
    elif n_rows <= 2048 and n_columns >= 8192:
        shape = FewShape(1, 16, 1)
    else:
        shape = FewShape(1, 8, 1 if n_tokens <= 32 or n_rows < 4096 else 2)
    return dataclasses.replace(shape, k=32) if n_columns % shape.k else shape


def expert_shape(device: Device, n_tokens: int) -> TileShape:
    """For products with experts that have ``n_tokens`` vectors each on average: the largest tiles that those fill, as
    the rest of a tile would be computed for nothing. Many experts make tiles enough for the device.
    """
    shapes = TILES[1:]
    fitting = (each for each in shapes if each.n <= n_tokens and each.shared_bytes() <= device.threadgroup_memory_bytes)
    return next(fitting, shapes[-1])


@dataclass(frozen=True)
class DecodeShape:
    """How shaders/attention_decode.comp shares out a token's positions."""

    threads: int  # invocations of a workgroup
    lanes: int  # invocations that share a position
    unroll: int  # positions that they load at a time
    rounds: int  # loads of a part, at least
    heads: int  # query heads of a workgroup
    max_parts: int  # workgroups that share out a head's positions, at most

    @property
    def chunk(self) -> int:
        """Positions that a workgroup has at a time."""
        return self.threads // self.lanes * self.unroll


def decode_shape(device: Device, dim: int, n_head: int, n_head_kv: int, n_ctx: int, n_tokens: int = 1) -> DecodeShape:
    """For tokens with heads of up to ``dim`` values.

    Each query head has workgroups of its own, or two that read the same keys share them where contexts may be long: on
    an H200 that takes 0.6 of 5.5 microseconds more at depth 60, and 2.7 of 21 less at depth 8192. With many
    tokens there are workgroups enough, and each key is read once for up to four heads.
    """
    lanes = 1
    while lanes < min(-(-dim // 8), device.subgroup_size):
        lanes *= 2
    busy = n_tokens * n_head >= 4 * PROCESSORS
    most = 256 if not busy else 128 if n_tokens * n_head < 8 * PROCESSORS else 64
    threads = max(device.subgroup_size, min(most, device.description.max_threads_per_threadgroup))
    heads = min(n_head // n_head_kv, 2 if n_ctx > LONG_CONTEXT or n_tokens * n_head >= 2 * PROCESSORS else 1)
    if busy:
        heads = min(n_head // n_head_kv, 4)
    fewest = 2 if n_tokens > 1 and not busy else 4
    max_parts = min(32, max(fewest, 2 * PROCESSORS * heads // (n_head * n_tokens)))
    return DecodeShape(threads, lanes, 4, 2, heads, max_parts)


@dataclass(frozen=True)
class AttentionShape:
    """How shaders/attention_cooperative.comp does."""

    subgroups: int  # of ``unit`` rows each
    columns: int  # positions at a time

    def shared_bytes(self, k_dim: int, v_dim: int, unit: int) -> int:
        rows = self.subgroups * unit
        tile = max(self.columns * (k_dim + v_dim + 16), rows * (k_dim + 8))
        return 2 * tile + rows * (self.columns + 8) * 6


def attention_shape(device: Device, k_dim: int, v_dim: int, unit: int) -> AttentionShape | None:
    """For heads of so many values, and matrices of ``unit`` rows and columns; None where shared memory is too small.

    On an H200 the first took 25 microseconds for 512 tokens of Llama 1B (43 of 8B), with 64 columns 29, with half as
    many subgroups 33 (69).
    """
    shapes = (AttentionShape(4, 32), AttentionShape(2, 32))
    fitting = (shape for shape in shapes if shape.shared_bytes(k_dim, v_dim, unit) <= device.threadgroup_memory_bytes)
    return next(fitting, None)
