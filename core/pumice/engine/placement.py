"""Which layers go to which device: as many as were asked for, as far as there is memory, in proportion to it."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping, Sequence

from pumice.backend import Backend
from pumice.errors import BackendError
from pumice.graph import Graph, KVState, Node, Segment, State, Target, Weight, place, states_of
from pumice.step import Limits

logger = logging.getLogger("pumice")

Backends = Sequence[tuple[str, Backend]]
Memory = Sequence[int | None]  # free bytes of each device of a backend; None: no matter how many


def place_layers(graphs: Sequence[Graph], backends: Backends, limits: Limits, n_gpu_layers: int) -> list[list[Segment]]:
    """The segments of each graph of a model. Each node goes to the first of ``backends`` that claims it.

    A layer of one number has the same line of backends and devices in all graphs.

    GPUs (``Backend.offload``) get only the last ``n_gpu_layers`` layers, counting what follows the last layer as one
    more, as llama.cpp does; -1 means all; it is logged where they have no memory for so many. Raises BackendError for
    a node that nobody can run.
    """
    n_layers = max(graph.n_layer for graph in graphs) + 1
    wanted = n_layers if n_gpu_layers < 0 else min(n_gpu_layers, n_layers)
    offered = [_Offer(name, backend, graphs, limits) for name, backend in backends if wanted or not backend.offload]
    for offer in offered:
        n_fit = offer.layers_that_fit() if offer.backend.offload else wanted
        if n_fit < wanted:
            others = next((name for name, backend in backends if not backend.offload), "no other backend")
            logger.warning("%s: memory for %d of %d layers; the others run on %s", offer.name, n_fit, wanted, others)
            wanted = n_fit
    first_offloaded = n_layers - wanted
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
    """A backend in line, and what the layers that it claims take on its devices."""

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
        """The device of each layer from ``first`` on."""
        sizes = {layer: size for layer, size in self._sizes.items() if layer >= first}
        devices = share_layers(sizes, self._free)
        return {layer: Target(self.name, self._claims, device) for layer, device in devices.items()}

    def _claimed(self, node: Node) -> list[Node]:
        """A node, or those of its parts that go to this backend."""
        return [node] if self._claims(node) else [claimed for part in node.expansion for claimed in self._claimed(part)]


def _supports(backend: Backend, limits: Limits, node: Node) -> bool:
    return backend.supports(node, limits)


def layer_bytes(nodes: Sequence[Node], footprint: Callable[[Weight | State], int], several: bool) -> dict[int, int]:
    """What weights and states of each layer take on a device; what precedes the first layer counts to it.

    A table of embeddings that is also the output's matrix counts to the last layer; with ``several`` devices to both.
    """
    sizes: dict[int, int] = {}
    seen = set()
    for node in reversed(nodes):
        layer = max(node.layer, 0)
        held_by_node: list[Weight | State] = [tensor for tensor in node.operands() if isinstance(tensor, Weight)]
        for held in [*held_by_node, *states_of([node])]:
            key = held.name, several and node.op == "embedding"
            if key not in seen:
                sizes[layer] = sizes.get(layer, 0) + footprint(held)
                seen.add(key)
    return sizes


def layers_that_fit(sizes: Mapping[int, int], free: Memory) -> int:
    """How many of the last layers fit into devices with so much memory free, each given layers in order."""
    return sum(device is not None for device in _fill(sizes, free).values())


def share_layers(sizes: Mapping[int, int], free: Memory) -> dict[int, int]:
    """The device of each layer: layers in order, in proportion to the devices' memory, as far as it is known."""
    memory = [bytes or 0 for bytes in free] if None not in free and any(free) else [1] * len(free)
    bounds = [sum(memory[: i + 1]) / sum(memory) for i in range(len(memory))]
    total, used = sum(sizes.values()) or 1, 0
    device_of = {}
    for layer in sorted(sizes):
        middle = (used + sizes[layer] / 2) / total
        device_of[layer] = next((i for i, bound in enumerate(bounds) if middle <= bound), len(free) - 1)
        used += sizes[layer]
    if all(_fits(sizes, device_of, device, left) for device, left in enumerate(free)):
        return device_of
    filled = _fill(sizes, free)
    return {layer: filled[layer] or 0 for layer in device_of}


def _fits(sizes: Mapping[int, int], device_of: Mapping[int, int], device: int, left: int | None) -> bool:
    return left is None or sum(sizes[layer] for layer in sizes if device_of[layer] == device) <= left


def _fill(sizes: Mapping[int, int], free: Memory) -> dict[int, int | None]:
    """Fill the last device with the last layers, then the one before; None: a layer for which no memory is left."""
    device_of: dict[int, int | None] = {}
    device, used = len(free) - 1, 0
    for layer in sorted(sizes, reverse=True):
        while device >= 0 and (left := free[device]) is not None and used + sizes[layer] > left:
            device, used = device - 1, 0
        used += sizes[layer]
        device_of[layer] = device if device >= 0 else None
    return device_of


def _cache_error(graphs: Sequence[Graph], limits: Limits) -> BackendError | None:
    """What to say where the keys or values of a layer are no whole blocks of the cache's type, which most decline."""
    for state in (state for graph in graphs for state in graph.states if isinstance(state, KVState)):
        if not limits.can_hold(state):
            rows = f"{state.name} has {state.n_head_kv} heads of {state.k_dim} and {state.v_dim} values"
            return BackendError(f"kv_type {limits.kv_type} needs rows of whole blocks, {rows}: use f16")
    return None
