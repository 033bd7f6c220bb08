"""Instructions of kernels are fetched while the kernels before them run.

The weights of a layer displace all else from a GPU's second-level cache, so each kernel of a step of many sequences
began with reads of its instructions from memory, 3 to 6 microseconds on an H200. A copy of its dispatch, one workgroup
that multiplies few columns or attends to one position and whose results nobody reads, runs beside earlier ones.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace

from pumice_vulkan.flags import FIXED, ProductFlag
from pumice_vulkan.lower.rule import Dispatch
from pumice_vulkan.memory import BufferSlice
from pumice_vulkan.shaders import interface
from pumice_vulkan.step import ZERO
from pumice_vulkan.tuning import LANES_STEP, LANES_UNIT

ROOM_BYTES = 1 << 22
"""Scratch memory that copies read and write: more than a tile of results of the widest matrix."""
LAYER_BYTES = 100_000_000
"""Weights of a layer from which on its kernels' instructions are fetched ahead."""
MEASURED = (48, 64, 128)
"""Sequences of steps in which they are: 16 take 1.6 % longer and 32 0.4 %; 96 and 256 were not measured."""
SHORT = ("norm", "rows", "embedding", "half", "expert_sum")
"""Prefixes of kernels that end before instructions for others are there."""
LANES, DECODE = "matmul_lanes", "attention_decode_units"
V_CACHE = 1 << 14  # words from keys to values in the scratch memory


def displaces(dispatches: Sequence[Dispatch], n_bytes: int) -> bool:
    """Return True if weights of ``n_bytes`` displace the instructions of a step's kernels before they run again.

    On an H200, 64 sequences of llama-8b (153 MB a layer) took 7.10 instead of 7.40 ms with copies, but those of
    llama-1b (48 MB) 1.65 instead of 1.63. Experts were not measured.
    """
    n_layers = sum(dispatch.kernel.startswith(DECODE) for dispatch in dispatches)
    lanes = [dispatch for dispatch in dispatches if dispatch.kernel.startswith(LANES)]
    has_experts = any(ProductFlag.BY_ID in ProductFlag(dispatch.constants[2]) for dispatch in lanes)
    return n_layers > 0 and not has_experts and n_bytes >= LAYER_BYTES * n_layers


def warmed(dispatches: Sequence[Dispatch], room: BufferSlice) -> list[Dispatch]:
    """Return the dispatches with copies that fetch the instructions of those behind the next barrier."""
    intervals: list[list[Dispatch]] = []
    for dispatch in dispatches:
        if dispatch.barrier or not intervals:
            intervals.append([])
        intervals[-1].append(dispatch)
    return [
        replace(dispatch, barrier=interval[0].barrier and not index)
        for number, interval in enumerate(intervals)
        for index, dispatch in enumerate([*_copies(intervals[number:], room), *interval])
    ]


def _copies(intervals: Sequence[Sequence[Dispatch]], room: BufferSlice) -> list[Dispatch]:
    """Return copies of different kernels of the next interval, or the next two if the next one is short."""
    if _is_short(intervals[0]):
        return []
    copies: dict[tuple[str, tuple[int, ...]], Dispatch] = {}
    for interval in _coming(intervals):
        for dispatch in interval:
            if copy := _copy(dispatch, room):
                copies.setdefault((dispatch.kernel, dispatch.constants), copy)
    return list(copies.values())


def _coming(intervals: Sequence[Sequence[Dispatch]]) -> Iterator[Sequence[Dispatch]]:
    for interval in intervals[1:]:
        yield interval
        if not _is_short(interval):
            return


def _is_short(interval: Sequence[Dispatch]) -> bool:
    return all(dispatch.kernel.startswith(SHORT) for dispatch in interval)


def _copy(dispatch: Dispatch, room: BufferSlice) -> Dispatch | None:
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
        else:
            buffers += [room.buffer] * count
            struct.pack_into(f"<{count}I", push, parameter.offset, *[room.offset] * count)
    return replace(dispatch, buffers=tuple(buffers), push=bytes(push), grid=(1, 1, 1), label=f"instructions of {kind}")
