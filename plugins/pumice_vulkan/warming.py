"""Instructions of kernels are fetched while the kernels before them run.

The weights of a layer displace all else from a GPU's second-level cache, so each kernel of a step of many sequences
began with reads of its instructions from memory, 3 to 6 microseconds on an H200. A copy of its dispatch, one workgroup
that multiplies few columns or attends to one position and whose results nobody reads, runs beside earlier ones.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from pumice_vulkan.flags import FIXED
from pumice_vulkan.formats import LANES_STEP
from pumice_vulkan.lower.rule import Dispatch
from pumice_vulkan.memory import BufferSlice
from pumice_vulkan.shaders import interface
from pumice_vulkan.step import ZERO
from pumice_vulkan.tuning import LANES_UNIT

ROOM_BYTES = 1 << 22
"""Scratch memory that copies read and write: more than a tile of results of the widest matrix."""
LAYER_BYTES = 100_000_000
"""Weights of a layer from which on its kernels' instructions are fetched ahead."""
MEASURED = (48, 64, 128, 256, 512)
"""Sequences of steps in which they are: 16 take 1.6 % longer and 32 0.4 %; 96 were not measured."""
SHORT = ("norm", "rows", "embedding", "half", "expert_sum")
"""Prefixes of kernels that end before instructions for others are there."""
LANES, DECODE = "matmul_lanes", "attention_decode_units"
V_CACHE = 1 << 14  # words from keys to values in the scratch memory
ONE_TILE = np.array([1, 0, 0, 1], np.uint32)
"""Routes of a copy: a tile of one pair, the first, of expert 0 (shaders/group.glsl)."""
ROUTES = {"tiles": 0, "order": 1}
"""Where ``ONE_TILE`` has the tiles, and the order of their pairs."""


def displaces(dispatches: Sequence[Dispatch], n_bytes: int) -> bool:
    """Return True if weights of ``n_bytes`` displace the instructions of a step's kernels before they run again.

    On an H200, 64 sequences of llama-8b (153 MB a layer) took 7.10 instead of 7.40 ms with copies, but those of
    llama-1b (48 MB) 1.65 instead of 1.63.
    """
    n_layers = sum(dispatch.kernel.startswith(DECODE) for dispatch in dispatches)
    return n_layers > 0 and n_bytes >= LAYER_BYTES * n_layers


def warmed(dispatches: Sequence[Dispatch], room: BufferSlice, routes: BufferSlice) -> list[Dispatch]:
    """Return the dispatches with copies that fetch the instructions of those behind the next barrier.

    ``room``: memory that copies read and write; ``routes``: ``ONE_TILE``.
    """
    intervals: list[list[Dispatch]] = []
    for dispatch in dispatches:
        if dispatch.barrier or not intervals:
            intervals.append([])
        intervals[-1].append(dispatch)
    return [
        replace(dispatch, barrier=interval[0].barrier and not index)
        for number, interval in enumerate(intervals)
        for index, dispatch in enumerate([*_copies(intervals[number:], room, routes), *interval])
    ]


def _copies(intervals: Sequence[Sequence[Dispatch]], room: BufferSlice, routes: BufferSlice) -> list[Dispatch]:
    """Return copies of different kernels of the next interval, or the next two if the next one is short."""
    if _is_short(intervals[0]):
        return []
    copies: dict[tuple[str, tuple[int, ...]], Dispatch] = {}
    for interval in _coming(intervals):
        for dispatch in interval:
            if copy := _copy(dispatch, room, routes):
                copies.setdefault((dispatch.kernel, dispatch.constants), copy)
    return list(copies.values())


def _coming(intervals: Sequence[Sequence[Dispatch]]) -> Iterator[Sequence[Dispatch]]:
    for interval in intervals[1:]:
        yield interval
        if not _is_short(interval):
            return


def _is_short(interval: Sequence[Dispatch]) -> bool:
    return all(dispatch.kernel.startswith(SHORT) for dispatch in interval)


def _copy(dispatch: Dispatch, room: BufferSlice, routes: BufferSlice) -> Dispatch | None:
    """Return a workgroup of a kernel that reads a matrix or angles at most, and writes to ``room``."""
    kind = dispatch.kernel.partition(".")[0]
    if kind == DECODE:
        kept = "turns"
        values = {"rows": FIXED | 1, "positions": ZERO, "table": ZERO, "table_width": 1, "v_cache": V_CACHE}
    elif kind == LANES:
        kept, parts_k = "weights", dispatch.constants[4]
        values = {"rows": FIXED | LANES_UNIT, "n_columns": LANES_STEP * parts_k}
    else:
        return None
    push, buffers = bytearray(dispatch.push), [dispatch.buffers[0]]
    for parameter in interface(dispatch.kernel).parameters:
        name, count = parameter.name.removesuffix("_at"), parameter.count or 1
        if name == parameter.name:
            if name in values:
                struct.pack_into("<I", push, parameter.offset, values[name])
        elif name == kept:
            buffers += dispatch.buffers[len(buffers) :][:count]
        elif name in ROUTES:
            buffers.append(routes.buffer)
            struct.pack_into("<I", push, parameter.offset, routes.offset + ROUTES[name])
        else:
            buffers += [room.buffer] * count
            struct.pack_into(f"<{count}I", push, parameter.offset, *[room.offset] * count)
    return replace(dispatch, buffers=tuple(buffers), push=bytes(push), grid=(1, 1, 1), label=f"instructions of {kind}")
