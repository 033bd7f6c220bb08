"""Sizes of steps and caches, and the bytes of a placed model on each device, by layer and part."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import NamedTuple

from pumice.architecture import ENCODER, MAIN
from pumice.backend import Backend
from pumice.backend.step import Limits
from pumice.engine.messages import DeviceFacts
from pumice.engine.placement.overrides import DeviceName
from pumice.graph import (
    Graph,
    KVState,
    MemoryPlan,
    RecurrentState,
    Segment,
    Sizes,
    State,
    Weight,
    concrete,
    plan_memory,
)

BLOCK_SIZE = 32  # positions in one block of the KV cache
MOST_TEXTS = 64  # per step of a model without a cache
MOST_FILLED = 256  # rows of logits per step of a diffusion model
CHECKPOINT_BYTES = 512 * 2**20  # of copies of recurrent states, unless two of them need more


@dataclass(frozen=True)
class EngineSizes:
    """The user's settings; see ``Limits``. ``n_cache``: positions that the KV cache holds; 0: ``n_ctx``."""

    n_ctx: int
    n_batch: int
    n_parallel: int
    kv_type: str
    in_place: str = ""
    n_cache: int = 0


def make_limits(graphs: Mapping[str, Graph], sizes: EngineSizes) -> Limits:
    """Return limits: every layer can hold ``n_cache`` positions, one with a window only those within reach.

    If a step must contain whole sequences, it has room for the longest.
    """
    if any(graph.needs_whole_sequences for graph in graphs.values()):
        sizes = replace(sizes, n_batch=max(sizes.n_batch, sizes.n_ctx))
    if not states_of_all(graphs):
        sizes = replace(sizes, n_parallel=max(sizes.n_parallel, MOST_TEXTS))
    n_whole = -(-(sizes.n_cache or sizes.n_ctx) // BLOCK_SIZE)
    n_blocks = {}
    for window in attention_windows(states_of_all(graphs)):
        reach = -(-(window + sizes.n_batch) // BLOCK_SIZE) + 1
        n_blocks[window] = min(n_whole, reach * sizes.n_parallel) if window else n_whole
    if ENCODER in graphs:
        n_blocks[0] = 2 * n_whole  # a context of the encoder, and one of the decoder
    return Limits(
        n_ctx=sizes.n_ctx,
        n_batch=sizes.n_batch,
        n_outputs=max(MOST_FILLED if graphs[MAIN].needs_whole_sequences else 64, sizes.n_parallel),
        n_seqs=sizes.n_parallel,
        block_size=BLOCK_SIZE,
        n_blocks=n_blocks,
        kv_type=sizes.kv_type,
        more_sizes={name: most for graph in graphs.values() for name, most in graph.sizes.items()},
        n_checkpoints=_n_checkpoints(states_of_all(graphs), sizes.n_parallel),
        in_place=sizes.in_place,
    )


def _n_checkpoints(states: Sequence[State], n_seqs: int) -> int:
    """Return the number of copies of recurrent states: one per sequence that runs ahead, and more for prefixes."""
    n_bytes = sum(4 * math.prod(state.shape) for state in states if isinstance(state, RecurrentState))
    if not n_bytes:
        return 0
    return max(2, min(2 * n_seqs + 14, CHECKPOINT_BYTES // n_bytes))


def states_of_all(graphs: Mapping[str, Graph]) -> list[State]:
    """Return every distinct state of a model."""
    return list(dict.fromkeys(state for graph in graphs.values() for state in graph.states))


def attention_windows(states: Sequence[State]) -> list[int]:
    """Return the distinct attention windows; layers with the same window share block tables."""
    return sorted({state.window for state in states if isinstance(state, KVState)})


PARTS = {
    "experts": re.compile(r"_(ch)?exps|exp_probs"),
    "embeddings": re.compile(r"^(token_embd|token_types|position_embd|per_layer)"),
    "output": re.compile(r"^(output|cls|score)"),
    "attention": re.compile(r"\.(attn|ssm|time_mix|wkv|shortconv|conv|rope|indexer)"),
    "ffn": re.compile(r"\.(ffn|channel_mix|post_ffw|layer_out)"),
}
"""Parts of a model, and patterns of GGUF's names of their tensors; the first match counts, others are ``other``."""


@dataclass
class DeviceUse:
    """Weights, states and activations of a model's graphs on one device; ``activations`` in bytes."""

    weights: dict[str, Weight] = field(default_factory=dict)  # by name
    states: dict[State, None] = field(default_factory=dict)
    activations: int = 0

    def n_bytes(self, backend: Backend, limits: Limits) -> int:
        """Return the bytes on a device of ``backend``."""
        held: list[Weight | State] = [*self.weights.values(), *self.states]
        return self.activations + sum(backend.footprint(item, limits) for item in held)

    def n_host_bytes(self, backend: Backend, limits: Limits) -> int:
        """Return the bytes in host memory that a device of ``backend`` reads there."""
        return sum(backend.host_footprint(weight, limits) for weight in self.weights.values())


class Activations(NamedTuple):
    """Bytes of the arena of a program, and of its outputs."""

    arena: int
    outputs: int


def activations_of(plan: MemoryPlan, segment: Segment, sizes: Sizes) -> Activations:
    """Return the activations of a segment's program in the largest step."""
    return Activations(plan.size, sum(4 * math.prod(concrete(tensor.shape, sizes)) for tensor in segment.outputs))


def devices_in_use(
    placed: Sequence[Sequence[Segment]],
    backends: Mapping[str, Backend],
    limits: Limits,
    later: Collection[int] = (),
) -> dict[DeviceName, DeviceUse]:
    """Return the use of each device of placed graphs.

    ``later``: numbers of the graphs that are compiled later, and take activations of their own then.
    """

    def activations(segment: Segment) -> Activations:
        plan = plan_memory(backends[segment.backend].rewrite(segment), limits.sizes)
        return activations_of(plan, segment, limits.sizes)

    programs = (
        (segment, Activations(0, 0) if number in later else activations(segment))
        for number, segments in enumerate(placed)
        for segment in segments
    )
    return uses_of(programs, backends)


def uses_of(
    programs: Iterable[tuple[Segment, Activations]], backends: Mapping[str, Backend]
) -> dict[DeviceName, DeviceUse]:
    """Return the use of each device by placed segments and the activations of their programs.

    Activations of a device are these arenas, and the scratch memory that its programs share. A shared arena that is too
    small for a program stays beside a larger one.
    """
    uses: dict[DeviceName, DeviceUse] = {}
    largest: dict[DeviceName, int] = {}
    for segment, (arena, outputs) in programs:
        backend, device = backends[segment.backend], DeviceName(segment.backend, segment.device)
        use = uses.setdefault(device, DeviceUse(activations=backend.scratch_bytes))
        operands = chain.from_iterable(part.operands() for node in segment.nodes for part in node.parts())
        use.weights |= {tensor.name: tensor for tensor in operands if isinstance(tensor, Weight)}
        use.states |= dict.fromkeys(segment.states)
        if backend.shares_arenas and not segment.gives_logits:
            use.activations += outputs if backend.keeps_outputs else 0
            if arena <= largest.get(device, 0):
                continue
            largest[device] = arena
        use.activations += arena
    return uses


@dataclass(frozen=True)
class Held:
    """Bytes on a device that belong together.

    Attributes:
        device: backend and number of the device.
        layer: number of the layer; -1: before the first layer, the number of layers: after the last; None: of no layer.
        part: one of ``PARTS``, ``other``, ``kv_cache``, ``recurrent_state`` or ``activations``.
        n_bytes: size in bytes.
    """

    device: DeviceName
    layer: int | None
    part: str
    n_bytes: int


def held_by(
    uses: Mapping[DeviceName, DeviceUse], placed: Iterable[Segment], backends: Mapping[str, Backend], limits: Limits
) -> list[Held]:
    """Return the parts of the uses of devices by the segments ``placed``; what they read in host memory lies there."""
    layers = _layers(placed)
    host = next((DeviceName(name) for name, backend in backends.items() if not backend.offload), None)
    sizes: Counter[tuple[DeviceName, int | None, str]] = Counter()
    for device, use in uses.items():
        backend = backends[device.backend]
        sizes[device, None, "activations"] += use.activations
        for weight in use.weights.values():
            of = layers[device, weight.name], part_of(weight.name)
            sizes[device, *of] += backend.footprint(weight, limits)
            if host is not None:
                sizes[host, *of] += backend.host_footprint(weight, limits)
        for state in use.states:
            part = "recurrent_state" if isinstance(state, RecurrentState) else "kv_cache"
            sizes[device, layers[device, state.name], part] += backend.footprint(state, limits)
    return [Held(*key, n_bytes) for key, n_bytes in sizes.items() if n_bytes]


def part_of(name: str) -> str:
    """Return the part of a model that a tensor belongs to."""
    return next((part for part, pattern in PARTS.items() if pattern.search(name)), "other")


def _layers(placed: Iterable[Segment]) -> dict[tuple[DeviceName, str], int]:
    """Return the layer of each weight and state by device and name: that of the first node that uses it."""
    layers: dict[tuple[DeviceName, str], int] = {}
    for segment in placed:
        device = DeviceName(segment.backend, segment.device)
        for node in segment.nodes:
            for part in node.parts():
                names = [tensor.name for tensor in part.operands() if isinstance(tensor, Weight)]
                for name in (*names, *([part.state.name] if part.state else [])):
                    layers.setdefault((device, name), node.layer)
    return layers


def facts_of(held: Sequence[Held], backends: Mapping[str, Backend]) -> list[DeviceFacts]:
    """Return what each device holds, GPUs first."""
    facts = []
    for device in dict.fromkeys(item.device for item in held):
        own = [item for item in held if item.device == device]
        parts: Counter[str] = Counter()
        for item in own:
            parts[item.part] += item.n_bytes
        layers = {max(item.layer, 0) for item in own if item.layer is not None}
        is_gpu = backends[device.backend].offload
        name = str(device) if is_gpu else device.backend
        facts.append(DeviceFacts(name, is_gpu, dict(sorted(parts.items())), sorted(layers)))
    return sorted(facts, key=lambda item: not item.is_gpu)
