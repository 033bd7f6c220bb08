"""Nodes that run elsewhere than the rest of their layer: on the device of an overridden tensor, or of the KV cache."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pumice.errors import BackendError, ConfigError
from pumice.graph import Graph, KVState, Node, Sizes, Tensor, Weight, concrete, states_of

_DEVICE = re.compile(r"(?P<backend>[a-z][a-z_]*?):?(?P<number>\d{1,3})", re.IGNORECASE | re.ASCII)
EXPERTS = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"
"""Pattern of the names of experts."""
FEED_FORWARD = r"\.ffn_(up|down|gate)\."
_RANGE = re.compile(r"\[\d+:\d+\]$")  # rows of a tensor, in the name of a weight


class DeviceName(NamedTuple):
    """A device: name of its backend, and its number there; options write ``cpu`` for ``HOST``, or ``vulkan0``."""

    backend: str
    number: int = 0

    def __str__(self) -> str:
        return "cpu" if self == HOST else f"{self.backend}{self.number}"


HOST = DeviceName("")
"""The backends that are not GPUs."""


@dataclass(frozen=True)
class Override:
    """Tensors whose names match ``pattern`` anywhere, and the nodes that use them, are placed on ``device``."""

    pattern: re.Pattern[str]
    device: DeviceName


def parse_device(text: str) -> DeviceName | None:
    """Return the device that ``Vulkan0``, ``vulkan:0`` or ``CPU`` names; None for other texts."""
    if text.strip().lower() == "cpu":
        return HOST
    match = _DEVICE.fullmatch(text.strip())
    return DeviceName(match["backend"].lower(), int(match["number"])) if match else None


def parse_overrides(texts: Sequence[str]) -> list[Override]:
    """Parse ``REGEX=DEVICE`` texts. Raises ConfigError."""
    overrides = []
    for text in texts:
        pattern, _, name = text.rpartition("=")
        device = parse_device(name)
        if not pattern or device is None:
            raise ConfigError(
                f"override_tensors: expected REGEX=DEVICE, such as exps=CPU or exps=Vulkan0, not {text!r}"
            )
        try:
            overrides.append(Override(re.compile(pattern), device))
        except re.error as error:
            raise ConfigError(f"override_tensors: {pattern!r} is not a regular expression: {error}") from None
    return overrides


def host_layers(n_cpu_moe: int, n_cpu_ffn: int) -> list[Override]:
    """Return the overrides that keep the experts, and the feed-forward matrices, of the first layers in host memory.

    Args:
        n_cpu_moe: number of layers whose experts stay in host memory; -1: all.
        n_cpu_ffn: likewise for matrices of dense feed-forward networks.
    """
    counts = ((n_cpu_moe, EXPERTS), (n_cpu_ffn, FEED_FORWARD))
    return [Override(re.compile(_layers(count) + names), HOST) for count, names in counts if count]


def _layers(count: int) -> str:
    return "" if count < 0 else rf"^blk\.({_numbers_below(count)})"


def _numbers_below(count: int) -> str:
    """Return a pattern of the decimal numbers below ``count``, which is positive, as short for large ones."""
    digits = str(count)
    shorter = rf"\d{{1,{len(digits) - 1}}}|" if len(digits) > 1 else ""
    lower = (
        rf"{digits[:i]}[0-{int(digit) - 1}]\d{{{len(digits) - i - 1}}}"
        for i, digit in enumerate(digits)
        if digit != "0"
    )
    return shorter + "|".join(lower)


def moved_nodes(
    graphs: Sequence[Graph], overrides: Sequence[Override], kv_offload: bool, sizes: Sizes
) -> dict[Node, DeviceName]:
    """Return the nodes that do not run on the device of their layer.

    A node runs where its weight is, and without ``kv_offload`` where the cache is. A node without weights and states
    runs where most of its operands' bytes come from: the activation between two products of experts, and the sum of
    their results, stay on the experts' device. The parts of a composite node stay together.

    Args:
        graphs: graphs of a model.
        overrides: the first one that matches a tensor counts.
        kv_offload: False keeps all key/value caches in host memory.
        sizes: largest values of named sizes.
    """
    moved: dict[Node, DeviceName] = {}
    if not overrides and kv_offload:
        return moved
    for graph in graphs:
        made_on: dict[Tensor, DeviceName] = {}
        for node in graph.nodes:
            device = _own_device(node, overrides, kv_offload) or _device_of_operands(node, made_on, sizes)
            if device is not None:
                made_on[node.output] = device
                moved |= dict.fromkeys(node.parts(), device)
    return moved


def _own_device(node: Node, overrides: Sequence[Override], kv_offload: bool) -> DeviceName | None:
    if not kv_offload and any(isinstance(state, KVState) for state in states_of([node])):
        return HOST
    names = [_RANGE.sub("", weight.name) for weight in _weights(node)]
    matches = (item.device for item in overrides if any(item.pattern.search(name) for name in names))
    return next(matches, None)


def _device_of_operands(node: Node, made_on: Mapping[Tensor, DeviceName], sizes: Sizes) -> DeviceName | None:
    if _weights(node) or states_of([node]):
        return None
    n_bytes: Counter[DeviceName | None] = Counter()
    for tensor in node.operands():
        n_bytes[made_on.get(tensor)] += math.prod(concrete(tensor.shape, sizes))
    device, most = max(n_bytes.items(), key=lambda item: item[1], default=(None, 0))
    return device if 2 * most > n_bytes.total() else None


def _weights(node: Node) -> list[Weight]:
    return [tensor for part in node.parts() for tensor in part.operands() if isinstance(tensor, Weight)]


def unmatched_overrides(graphs: Sequence[Graph], texts: Sequence[str]) -> list[str]:
    """Return the ``REGEX=DEVICE`` texts that match no tensor of a model. Raises ConfigError."""
    names = {_RANGE.sub("", weight.name) for graph in graphs for node in graph.nodes for weight in _weights(node)}
    overrides = zip(texts, parse_overrides(texts), strict=True)
    return [text for text, item in overrides if not any(item.pattern.search(name) for name in names)]


def check_devices(moved: Mapping[Node, DeviceName], devices: Sequence[DeviceName]) -> None:
    """Raise BackendError if nodes were moved to a device that is not in use."""
    for device in set(moved.values()) - {HOST, *devices}:
        in_use = ", ".join(map(str, (HOST, *devices)))
        raise BackendError(f"override_tensors: no device {device} is in use; devices in use: {in_use}")
