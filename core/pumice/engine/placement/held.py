"""Bytes that a placed model holds on each device, by layer and part."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pumice.backend import Backend
from pumice.backend.step import Limits
from pumice.engine.messages import DeviceFacts
from pumice.engine.placement.overrides import DeviceName
from pumice.engine.placement.placement import DeviceUse, uses_at_load
from pumice.graph import RecurrentState, Segment, State, Weight

PARTS = {
    "experts": re.compile(r"_(ch)?exps|exp_probs"),
    "embeddings": re.compile(r"^(token_embd|token_types|position_embd|per_layer)"),
    "output": re.compile(r"^(output|cls|score)"),
    "attention": re.compile(r"\.(attn|ssm|time_mix|wkv|shortconv|conv|rope|indexer)"),
    "ffn": re.compile(r"\.(ffn|channel_mix|post_ffw|layer_out)"),
}
"""Parts of a model, and patterns of GGUF's names of their tensors; the first match counts, others are ``other``."""


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


def held_parts(
    placed: Mapping[str, Sequence[Segment]], backends: Mapping[str, Backend], limits: Limits, later: Container[str]
) -> list[Held]:
    """Return what each device would hold: each weight and state once, and the activations of programs.

    Args:
        placed: segments of each graph by name.
        backends: backends by name.
        limits: largest step, and size of the caches.
        later: names of graphs whose programs are compiled later, and take activations of their own then.
    """
    uses = uses_at_load(list(placed.values()), [name in later for name in placed], backends, limits)
    return held_by(uses, [segment for segments in placed.values() for segment in segments], backends, limits)


def held_by(
    uses: Mapping[DeviceName, DeviceUse], placed: Sequence[Segment], backends: Mapping[str, Backend], limits: Limits
) -> list[Held]:
    """Return the parts of the uses of devices by the segments ``placed``."""
    layers = _layers(placed)
    rows = []
    for device, use in uses.items():
        sizes: dict[tuple[int | None, str], int] = {(None, "activations"): use.activations}
        for item, part in _named_parts(use):
            key = layers[device, item.name], part
            sizes[key] = sizes.get(key, 0) + backends[device[0]].footprint(item, limits)
        rows += [Held(device, layer, part, n_bytes) for (layer, part), n_bytes in sizes.items() if n_bytes]
    return rows + _held_in_place(uses, layers, backends, limits)


def _held_in_place(
    uses: Mapping[DeviceName, DeviceUse],
    layers: Mapping[tuple[DeviceName, str], int],
    backends: Mapping[str, Backend],
    limits: Limits,
) -> list[Held]:
    """Return what devices read in host memory."""
    host = next((name for name, backend in backends.items() if not backend.offload), None)
    weights = ((device, weight) for device, use in uses.items() for weight in use.weights.values())
    sizes = ((device, weight, backends[device.backend].host_footprint(weight, limits)) for device, weight in weights)
    return [
        Held(DeviceName(host), layers[device, weight.name], part_of(weight.name), n_bytes)
        for device, weight, n_bytes in sizes
        if n_bytes and host is not None
    ]


def _named_parts(use: DeviceUse) -> Iterator[tuple[Weight | State, str]]:
    for weight in use.weights.values():
        yield weight, part_of(weight.name)
    for state in use.states:
        yield state, "recurrent_state" if isinstance(state, RecurrentState) else "kv_cache"


def part_of(name: str) -> str:
    """Return the part of a model that a tensor belongs to."""
    return next((part for part, pattern in PARTS.items() if pattern.search(name)), "other")


def _layers(placed: Sequence[Segment]) -> dict[tuple[DeviceName, str], int]:
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
        layers = {max(item.layer, 0) for item in own if item.layer is not None}
        parts = {part: total(item for item in own if item.part == part) for part in sorted({item.part for item in own})}
        is_gpu = backends[device.backend].offload
        facts.append(DeviceFacts(str(device) if is_gpu else device.backend, is_gpu, parts, sorted(layers)))
    return sorted(facts, key=lambda item: not item.is_gpu)


def total(held: Iterable[Held], device: DeviceName | None = None) -> int:
    """Return the bytes of a device, or of all devices."""
    return sum(item.n_bytes for item in held if device in (None, item.device))
