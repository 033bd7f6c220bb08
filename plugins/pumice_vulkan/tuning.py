"""Sizes of the matrix kernels' workgroups: measured where possible (bench/vulkan_matmul.py), else chosen to be safe."""

from __future__ import annotations

from dataclasses import dataclass

from pumice_vulkan.device import Device


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
    """How shaders/matmul_cooperative.comp does."""

    m: int
    n: int
    warps_m: int
    warps_n: int
    stages: int = 2

    def shared_bytes(self) -> int:
        return (self.m + self.n) * 40 * 2 * self.stages + self.warps_m * self.warps_n * 1024


def vector_shape(device: Device, n_rows: int, row_blocks: int, n_tokens: int, block_columns: int) -> VectorShape:
    """For a product of ``n_rows`` rows of so many blocks with ``n_tokens`` vectors."""
    subgroup = device.subgroup_size
    lanes = subgroup
    while 2 * lanes <= min(256, row_blocks // 2):
        lanes *= 2
    groups = max(1, 128 // lanes)
    unroll = 2 if lanes < row_blocks and n_tokens <= 2 else 1
    return VectorShape(lanes, groups, 4 if n_tokens <= 4 else 2, unroll)


def tile_shape(device: Device, n_rows: int, n_tokens: int) -> TileShape:
    """For a product of ``n_rows`` rows with ``n_tokens`` vectors on matrix units."""
    if n_tokens <= 32:
        return TileShape(64, 32, 4, 1)
    if n_tokens <= 64 or n_rows * n_tokens < 2**21:
        return TileShape(64, 64, 2, 2)
    return TileShape(128, 128, 2, 2)
