"""Place layers on devices: as many as requested, as far as memory allows, in proportion to it."""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from pumice.backend import Backend
from pumice.backend.step import Limits
from pumice.config import Config
from pumice.engine.placement.overrides import (
    HOST,
    DeviceName,
    Override,
    check_devices,
    host_layers,
    moved_nodes,
    parse_overrides,
)
from pumice.engine.placement.sizing import Activations, DeviceUse, devices_in_use, uses_of
from pumice.errors import BackendError
from pumice.graph import (
    Graph,
    KVState,
    Node,
    Segment,
    State,
    Target,
    Tensor,
    Weight,
    concrete,
    place,
    states_of,
)
from pumice.graph.memory import ALIGNMENT
from pumice.graph.taps import TAP
from pumice.wording import counted_as

logger = logging.getLogger("pumice")

Backends = Sequence[tuple[str, Backend]]
FreeMemory = Sequence[int | None]  # free bytes of each device of a backend; None: unlimited


@dataclass(frozen=True)
class PlacementRules:
    """Wishes of the user, which restrict where layers are placed.

    Attributes:
        n_gpu_layers: number of last layers on GPUs, counting the output as one more, as llama.cpp does; -1: all.
        overrides: tensors placed on a given device.
        kv_offload: False keeps key/value caches in host memory.
        tensor_split: share of each device of a GPU backend; empty: in proportion to free memory.
        fit: reduce the layers on GPUs to those that memory has room for.
        margin: bytes of each GPU that stay free, besides those that the backend reserves.
    """

    n_gpu_layers: int = -1
    overrides: tuple[Override, ...] = ()
    kv_offload: bool = True
    tensor_split: tuple[float, ...] = ()
    fit: bool = True
    margin: int = 0

    @classmethod
    def of(cls, config: Config) -> PlacementRules:
        """Return the rules of a configuration. Raises ConfigError."""
        return cls(
            n_gpu_layers=config.n_gpu_layers,
            overrides=(*parse_overrides(config.override_tensors), *host_layers(config.n_cpu_moe, config.n_cpu_ffn)),
            kv_offload=config.kv_offload,
            tensor_split=tuple(config.tensor_split),
            fit=config.fit,
            margin=config.fit_target * 2**20,
        )


class Placement(NamedTuple):
    """A placed model: the segments of each graph, and its layers in all, wanted on GPUs and placed there.

    The output counts as a layer.
    """

    segments: list[list[Segment]]
    n_layers: int
    n_wanted: int
    n_offloaded: int

    @property
    def is_whole(self) -> bool:
        """True if GPUs have room for all layers that should be there."""
        return self.n_offloaded == self.n_wanted


def place_layers(
    graphs: Sequence[Graph], backends: Backends, limits: Limits, rules: PlacementRules
) -> list[list[Segment]]:
    """Return the segments of each graph of a model, like ``find_placement``. A warning says if memory is short."""
    placement = find_placement(graphs, backends, limits, rules)
    if not placement.is_whole:
        gpus = ", ".join(name for name, backend in backends if backend.offload)
        others = next((name for name, backend in backends if not backend.offload), "no other backend")
        counts = placement.n_offloaded, placement.n_wanted
        logger.warning("%s: memory for %d of %d layers; the others run on %s", gpus, *counts, others)
    return placement.segments


def find_placement(graphs: Sequence[Graph], backends: Backends, limits: Limits, rules: PlacementRules) -> Placement:
    """Place the graphs of a model. Each node goes to the first backend that supports it.

    Layers with the same number have the same order of backends and devices in all graphs.

    GPUs (``Backend.offload``) get the last layers that ``rules`` allow and that memory has room for. Raises
    BackendError for a node that no backend supports, or a cache type that cannot hold the rows of keys or values.
    """
    _check_cache(graphs, limits)
    moved = moved_nodes(graphs, rules.overrides, rules.kv_offload, limits.sizes)
    n_layers = max(graph.n_layer for graph in graphs) + 1
    n_wanted = n_layers if rules.n_gpu_layers < 0 else min(rules.n_gpu_layers, n_layers)
    uses_gpu = n_wanted or any(device != HOST for device in moved.values())
    offers = [
        _Offer(name, backend, graphs, limits, rules, moved)
        for name, backend in backends
        if uses_gpu or not backend.offload
    ]
    check_devices(moved, [device for offer in offers if offer.backend.offload for device in offer.devices])
    gpus = [offer for offer in offers if offer.backend.offload]
    n_offloaded = min([n_wanted, *(offer.layers_that_fit() for offer in gpus)]) if rules.fit else n_wanted
    placed = _place(graphs, offers, n_layers - n_offloaded)
    while n_offloaded and rules.fit and not _has_room(placed, gpus, limits):
        n_offloaded -= 1
        placed = _place(graphs, offers, n_layers - n_offloaded)
    return Placement(placed, n_layers, n_wanted, n_offloaded)


def _place(graphs: Sequence[Graph], offers: Sequence[_Offer], first: int) -> list[list[Segment]]:
    """Return the segments with layers from ``first`` on on GPUs."""
    pinned = [target for offer in offers for target in offer.pinned()]
    targets = [offer.targets(first if offer.backend.offload else 0) for offer in offers]

    def line(layer: int) -> list[Target]:
        return [*pinned, *(of_layer[layer] for of_layer in targets if layer in of_layer)]

    homes: dict[State, Target] = {}
    return [place(graph, line, homes) for graph in graphs]


def place_like(graph: Graph, like: Sequence[Segment], backends: Backends, limits: Limits) -> list[Segment]:
    """Return the segments of a graph whose nodes lie where ``like`` has the same values, weights and states.

    Other nodes go to the first backend of their layer's devices, and then of all, that supports them.
    """
    devices: dict[int, dict[tuple[str, int], None]] = {}
    where: dict[Tensor, tuple[str, int]] = {}
    at_home: dict[State, tuple[str, int]] = {}
    for segment in like:
        device = segment.backend, segment.device
        at_home |= dict.fromkeys(segment.states, device)
        for node in segment.nodes:
            devices.setdefault(max(node.layer, 0), {})[device] = None
            for part in node.parts():
                where |= dict.fromkeys([part.output, *part.weights()], device)

    def claims(name: str, number: int, node: Node) -> bool:
        backend = dict(backends)[name]
        places = (where.get(tensor) for tensor in (node.output, *node.weights()) if node.op != TAP)
        known = next(filter(None, places), None)
        return known in (None, (name, number)) and backend.supports(node, limits)

    def target(name: str, number: int) -> Target:
        return Target(name, functools.partial(claims, name, number), number)

    order = [name for name, _ in backends]

    def line(layer: int) -> list[Target]:
        used = sorted(devices.get(layer, {}), key=lambda device: order.index(device[0]))
        others = [(name, 0) for name, backend in backends if not backend.offload and (name, 0) not in used]
        return [target(*device) for device in [*used, *others]]

    return place(graph, line, {state: target(*device) for state, device in at_home.items()})


def _has_room(placed: Sequence[Sequence[Segment]], gpus: Sequence[_Offer], limits: Limits) -> bool:
    """Return True if weights, states and activations fit into the free memory of every GPU."""
    limited = {offer.name: offer for offer in gpus if any(free is not None for free in offer.free)}
    if not limited:
        return True
    segments = [[segment for segment in graph if segment.backend in limited] for graph in placed]
    backends = {name: offer.backend for name, offer in limited.items()}

    def fit(uses: Mapping[DeviceName, DeviceUse]) -> bool:
        return all(
            (free := limited[name].free[device]) is None or use.n_bytes(backends[name], limits) <= free
            for (name, device), use in uses.items()
        )

    ample = uses_of(((segment, _ample(segment, limits)) for segment in chain.from_iterable(segments)), backends)
    return fit(ample) or fit(devices_in_use(segments, backends, limits))


def _ample(segment: Segment, limits: Limits) -> Activations:
    """Return at least a segment's activations: its values without shared memory, which needs no plan."""
    values = dict.fromkeys(tensor for node in segment.nodes for tensor in (*node.operands(), node.output))
    sizes = [4 * math.prod(concrete(tensor.shape, limits.sizes)) for tensor in values if not isinstance(tensor, Weight)]
    return Activations(sum(sizes) + ALIGNMENT * len(sizes), sum(sizes))


class _Offer:
    """A backend, and the memory that the layers that it supports take on its devices."""

    def __init__(
        self,
        name: str,
        backend: Backend,
        graphs: Sequence[Graph],
        limits: Limits,
        rules: PlacementRules,
        moved: Mapping[Node, DeviceName],
    ) -> None:
        self.name = name
        self.backend = backend
        self._n_layers = max(graph.n_layer for graph in graphs) + 1
        self._limits = limits
        self._moved = moved
        self._supported: dict[Node, bool] = {}
        margin = rules.margin if backend.offload else 0
        self.free = [None if free is None else max(free - margin, 0) for free in backend.free_memory()]
        if backend.offload and len(rules.tensor_split) > len(self.free):
            count = counted_as(len(self.free), "device")
            raise BackendError(
                f"tensor_split has {len(rules.tensor_split)} shares, but {name} uses {count}; "
                "name the devices with -dev, or --split-mode layer for all"
            )
        self._shares = _shares(rules.tensor_split, len(self.free)) if backend.offload else ()
        self._sizes = dict.fromkeys(range(self._n_layers), 0)
        if len(self.free) > 1 or (backend.offload and None not in self.free):
            nodes = [part for graph in graphs for node in graph.nodes for part in self._claimed(node)]
            self._sizes |= layer_bytes(nodes, lambda held: backend.footprint(held, limits), len(self.free) > 1)

    @property
    def devices(self) -> list[DeviceName]:
        return [DeviceName(self.name, number) for number in range(len(self.free))]

    def layers_that_fit(self) -> int:
        return layers_that_fit(self._sizes, self.free)

    def targets(self, first: int) -> dict[int, Target]:
        """Return the device of each layer from ``first`` on."""
        sizes = {layer: size for layer, size in self._sizes.items() if layer >= first}
        devices = share_layers(sizes, self.free, self._shares)
        return {layer: Target(self.name, self._claims, device) for layer, device in devices.items()}

    def pinned(self) -> list[Target]:
        """Return the devices to which nodes were moved, for these nodes only."""
        devices = [device for device in self.devices if device in set(self._moved.values())]
        return [
            Target(self.name, functools.partial(self._is_moved, device), device.number)
            for device in devices
            if self.backend.offload
        ]

    def _is_moved(self, device: DeviceName, node: Node) -> bool:
        return self._moved.get(node) == device and self._supports(node)

    def _claims(self, node: Node) -> bool:
        """Return True for a node that this backend supports. GPUs leave moved nodes to others."""
        return not (self.backend.offload and node in self._moved) and self._supports(node)

    def _supports(self, node: Node) -> bool:
        if node not in self._supported:
            self._supported[node] = self.backend.supports(node, self._limits)
        return self._supported[node]

    def _claimed(self, node: Node) -> list[Node]:
        """Return a node, or those of its parts that go to this backend."""
        return [node] if self._claims(node) else [claimed for part in node.expansion for claimed in self._claimed(part)]


def _shares(tensor_split: Sequence[float], n_devices: int) -> tuple[float, ...]:
    """Return a share for each device, 0 for those that ``tensor_split`` leaves out; empty without shares."""
    return (*tensor_split, *[0.0] * (n_devices - len(tensor_split))) if any(tensor_split) else ()


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


def share_layers(sizes: Mapping[int, int], free: FreeMemory, shares: Sequence[float] = ()) -> dict[int, int]:
    """Return the device of each layer, in order.

    Devices get layers in proportion to ``shares``, by default to their memory where it is known, as far as they fit.
    """
    is_reported = None not in free and any(free)
    memory: Sequence[float] = shares or ([bytes or 0 for bytes in free] if is_reported else [1] * len(free))
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


def _check_cache(graphs: Sequence[Graph], limits: Limits) -> None:
    """Raise BackendError if rows of keys or values are no whole blocks of the cache's type."""
    for state in (state for graph in graphs for state in graph.states if isinstance(state, KVState)):
        if not limits.can_hold(state):
            rows = f"{state.name} has {state.n_head_kv} heads of {state.k_dim} and {state.v_dim} values"
            raise BackendError(f"kv_type {limits.kv_type} needs rows of whole blocks, {rows}; use f16")
