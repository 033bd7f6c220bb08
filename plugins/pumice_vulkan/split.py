"""Layers and memory: how many fit, and which device gets which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from pumice.plugin import Batch, KernelTime, KVState, Limits, Node, Program, Segment, Weight
from pumice_vulkan.kv_cache import CacheLayout

RESERVE = 256 * 2**20  # bytes of a device that are left for activations, command buffers and others
LAYOUT_FACTOR = 1.04  # how much larger weights may become in the kernels' layouts


def layer_bytes(nodes: Sequence[Node], limits: Limits, several: bool = False) -> dict[int, int]:
    """What weights and caches of each layer take on a device; what precedes the first layer counts to it.

    A table of embeddings that is also the output's matrix counts to the last layer; with ``several`` devices to both.
    """
    sizes: dict[int, int] = {}
    seen: set[Any] = set()
    for node in reversed(nodes):
        layer = max(node.layer, 0)
        sizes.setdefault(layer, 0)
        for part in (node, *node.expansion):
            if isinstance(part.state, KVState) and part.state not in seen:
                sizes[layer] += 4 * CacheLayout.of(part.state, limits).words
                seen.add(part.state)
        for tensor in node.operands():
            key = (tensor.name, several and node.op == "embedding")
            if isinstance(tensor, Weight) and key not in seen:
                sizes[layer] += int(tensor.data.nbytes * LAYOUT_FACTOR)
                seen.add(key)
    return sizes


def layers_that_fit(sizes: Mapping[int, int], free: Sequence[int]) -> int:
    """How many of the last layers fit into devices with so much memory free, each given layers in order."""
    left = [memory - RESERVE for memory in free]
    count = 0
    for layer in sorted(sizes, reverse=True):
        while left and sizes[layer] > left[-1]:
            left.pop()
        if not left:
            break
        left[-1] -= sizes[layer]
        count += 1
    return count


def split(segment: Segment, sizes: Mapping[int, int], free: Sequence[int]) -> list[Segment]:
    """A segment for each device: layers in order, in proportion to the devices' memory. Some may be missing."""
    total, parts, used = sum(sizes.values()) or 1, [], 0
    bounds = [sum(free[: i + 1]) / sum(free) for i in range(len(free))]
    device_of = {}
    for layer in sorted(sizes):
        middle = (used + sizes[layer] / 2) / total
        device_of[layer] = next(i for i, bound in enumerate(bounds) if middle <= bound or i == len(free) - 1)
        used += sizes[layer]
    for device in range(len(free)):
        nodes = [node for node in segment.nodes if device_of[max(node.layer, 0)] == device]
        parts.append(Segment(segment.backend, nodes))
    _connect(parts, segment)
    return parts


def _connect(parts: Sequence[Segment], whole: Segment) -> None:
    """Fill in what each part takes and gives. A reshape that crosses is a value as any other."""
    made_by = {node.output: part for part in parts for node in part.nodes}
    for part in parts:
        operands = dict.fromkeys(tensor for node in part.nodes for tensor in node.operands())
        for tensor in operands:
            if isinstance(tensor, Weight) or made_by.get(tensor) is part:
                continue
            part.inputs.append(tensor)
            if tensor in made_by and tensor not in made_by[tensor].outputs:
                made_by[tensor].outputs.append(tensor)
    for tensor in whole.outputs:
        if tensor not in made_by[tensor].outputs:
            made_by[tensor].outputs.append(tensor)


class SplitProgram(Program):
    """Programs of several devices that run one after the other, with values copied through the host."""

    def __init__(self, programs: Sequence[Program], segment: Segment) -> None:
        self._programs = programs
        self._outputs = [tensor.name for tensor in segment.outputs]

    def run(self, inputs: Mapping[str, NDArray[Any]], batch: Batch) -> Mapping[str, NDArray[Any]]:
        values = dict(inputs)
        for program in self._programs:
            values.update(program.run(values, batch))
        return {name: values[name] for name in self._outputs}

    def profile(self) -> list[KernelTime]:
        return [kernel for program in self._programs for kernel in program.profile()]

    @property
    def memory(self) -> dict[str, int]:
        total: dict[str, int] = {}
        for program in self._programs:
            for purpose, n_bytes in program.memory.items():
                total[purpose] = total.get(purpose, 0) + n_bytes
        return total

    def close(self) -> None:
        for program in self._programs:
            program.close()
