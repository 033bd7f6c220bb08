"""Place layers on devices: as many as requested, as far as memory allows, in proportion to it."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping, Sequence

from pumice.backend import Backend
from pumice.backend.step import Limits
from pumice.errors import BackendError
from pumice.graph import Graph, KVState, Node, Segment, State, Target, Weight, place, states_of

logger = logging.getLogger("pumice")

Backends = Sequence[tuple[str, Backend]]
FreeMemory = Sequence[int | None]  # free bytes of each device of a backend; None: unlimited


def place_layers(graphs: Sequence[Graph], backends: Backends, limits: Limits, n_gpu_layers: int) -> list[list[Segment]]:
    """Return the segments of each graph of a model. Each node goes to the first backend that supports it.

    Layers with the same number have the same order of backends and devices in all graphs.

    GPUs (``Backend.offload``) get only the last ``n_gpu_layers`` layers, counting the output as one more, as llama.cpp
    does; -1 means all. A lack of memory is logged. Raises BackendError for a node that no backend supports.
    """
    n_layers = max(graph.n_layer for graph in graphs) + 1
    n_offloaded = n_layers if n_gpu_layers < 0 else min(n_gpu_layers, n_layers)
    offered = [
        _Offer(name, backend, graphs, limits) for name, backend in backends if n_offloaded or not backend.offload
    ]
    for offer in offered:
        n_fit = offer.layers_that_fit() if offer.backend.offload else n_offloaded
        if n_fit < n_offloaded:
            others = next((name for name, backend in backends if not backend.offload), "no other backend")
            logger.warning(
                "%s: memory for %d of %d layers; the others run on %s", offer.name, n_fit, n_offloaded, others
            )
            n_offloaded = n_fit
    first_offloaded = n_layers - n_offloaded
    lines = [(offer, first_offloaded if offer.backend.offload else 0) for offer in offered]
    targets = [offer.targets(first) for offer, first in lines]

    def line(layer: int) -> list[Target]:
        return [of_layer[layer] for of_layer in targets if layer in of_layer]

    homes: dict[State, Target] = {}
    try:
        return [place(graph, line, homes) for graph in graphs]
    except BackendError as error:
        raise _cache_error(graphs, limits) or error from None


class _Offer:
    """A backend, and the memory that the layers that it supports take on its devices."""

    def __init__(self, name: str, backend: Backend, graphs: Sequence[Graph], limits: Limits) -> None:
        self.name = name
        self.backend = backend
        self._n_layers = max(graph.n_layer for graph in graphs) + 1
        self._claims = functools.partial(_supports, backend, limits)
        self._free = backend.free_memory()
        self._sizes = dict.fromkeys(range(self._n_layers), 0)
        if len(self._free) > 1 or (backend.offload and None not in self._free):
            nodes = [part for graph in graphs for node in graph.nodes for part in self._claimed(node)]
            self._sizes |= layer_bytes(nodes, lambda held: backend.footprint(held, limits), len(self._free) > 1)

    def layers_that_fit(self) -> int:
        return layers_that_fit(self._sizes, self._free)

    def targets(self, first: int) -> dict[int, Target]:
        """Return the device of each layer from ``first`` on."""
        sizes = {layer: size for layer, size in self._sizes.items() if layer >= first}
        devices = share_layers(sizes, self._free)
        return {layer: Target(self.name, self._claims, device) for layer, device in devices.items()}

    def _claimed(self, node: Node) -> list[Node]:
        """Return a node, or those of its parts that go to this backend."""
        return [node] if self._claims(node) else [claimed for part in node.expansion for claimed in self._claimed(part)]


def _supports(backend: Backend, limits: Limits, node: Node) -> bool:
    return backend.supports(node, limits)


def layer_bytes(nodes: Sequence[Node], footprint: Callable[[Weight | State], int], several: bool) -> dict[int, int]:
    """Return the bytes of weights and states of each layer; nodes before the first layer count as part of it.

    A tied output matrix counts for the last layer; with ``several`` devices for the first one, too.
    """
    sizes: dict[int, int] = {}
    counted = set()
    for node in reversed(nodes):
        layer = max(node.layer, 0)
        held_by_node: list[Weight | State] = [tensor for tensor in node.operands() if isinstance(tensor, Weight)]
        for held in [*held_by_node, *states_of([node])]:
            key = held.name, several and node.op == "embedding"
            if key not in counted:
                sizes[layer] = sizes.get(layer, 0) + footprint(held)
                counted.add(key)
    return sizes


def layers_that_fit(sizes: Mapping[int, int], free: FreeMemory) -> int:
    """Return the number of last layers that fit into the free memory of devices, which get layers in order."""
    return sum(device is not None for device in _fill(sizes, free).values())


def share_layers(sizes: Mapping[int, int], free: FreeMemory) -> dict[int, int]:
    """Return the device of each layer: in order, in proportion to the devices' memory where it is known."""
    memory = [bytes or 0 for bytes in free] if None not in free and any(free) else [1] * len(free)
    bounds = [sum(memory[: i + 1]) / sum(memory) for i in range(len(memory))]
    total, used = sum(sizes.values()) or 1, 0
    device_of = {}
    for layer in sorted(sizes):
        middle = (used + sizes[layer] / 2) / total
        device_of[layer] = next((i for i, bound in enumerate(bounds) if middle <= bound), len(free) - 1)
        used += sizes[layer]
    if all(_fits(sizes, device_of, device, n_bytes) for device, n_bytes in enumerate(free)):
        return device_of
    filled = _fill(sizes, free)
    return {layer: filled[layer] or 0 for layer in device_of}


def _fits(sizes: Mapping[int, int], device_of: Mapping[int, int], device: int, n_free: int | None) -> bool:
    return n_free is None or sum(sizes[layer] for layer in sizes if device_of[layer] == device) <= n_free


def _fill(sizes: Mapping[int, int], free: FreeMemory) -> dict[int, int | None]:
    """Fill the last device with the last layers, then the one before; None for layers that do not fit."""
    device_of: dict[int, int | None] = {}
    device, used = len(free) - 1, 0
    for layer in sorted(sizes, reverse=True):
        while device >= 0 and (n_free := free[device]) is not None and used + sizes[layer] > n_free:
            device, used = device - 1, 0
        used += sizes[layer]
        device_of[layer] = device if device >= 0 else None
    return device_of


def _cache_error(graphs: Sequence[Graph], limits: Limits) -> BackendError | None:
    """Return an error if rows of keys or values are no whole blocks of the cache's type; None otherwise."""
    for state in (state for graph in graphs for state in graph.states if isinstance(state, KVState)):
        if not limits.can_hold(state):
            rows = f"{state.name} has {state.n_head_kv} heads of {state.k_dim} and {state.v_dim} values"
            return BackendError(f"kv_type {limits.kv_type} needs rows of whole blocks, {rows}; use f16")
    return None
