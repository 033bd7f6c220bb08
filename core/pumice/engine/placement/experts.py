"""Choose layers whose experts stay in host memory, so that GPUs hold the rest of more layers."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pumice.backend import Backend
from pumice.backend.step import Limits
from pumice.config import Config
from pumice.engine.placement.costs import StepPart, step_parts
from pumice.engine.placement.expert_stream import ExpertStream, stream_experts
from pumice.engine.placement.overrides import EXPERTS, DeviceName, host_layers
from pumice.engine.placement.placement import Backends, Placement, PlacementRules, find_placement
from pumice.engine.placement.rates import Rates, known_rates, step_seconds, stream_seconds
from pumice.graph import Graph, Segment, Weight

logger = logging.getLogger("pumice")

_NAMES = re.compile(EXPERTS)
_PARTS = "down", "up|gate|gate_up"  # experts of a layer that GPUs read in host memory alone, the fewest bytes first


def chosen_rules(graphs: Sequence[Graph], backends: Backends, limits: Limits, config: Config) -> PlacementRules:
    """Return the rules of a configuration; experts that GPUs lack room for stay in host memory, unless it says which.

    ``graphs`` are as for ``place_experts``. Rates count if they have been measured; nothing is measured here.
    """
    rules = PlacementRules.of(config)
    if not may_move_experts(graphs, backends, config):
        return rules
    rules, n_layers = place_experts(graphs, backends, limits, rules, config)
    if n_layers:
        logger.info("experts of the first %d layers stay in host memory, so that GPUs hold the rest", n_layers)
    return rules


def may_move_experts(graphs: Sequence[Graph], backends: Backends, config: Config) -> bool:
    """Return True if a model has experts and a GPU, and the configuration leaves it open where layers and experts lie.

    ``graphs`` are as for ``place_experts``.
    """
    is_open = all(config.is_default(key) for key in ("n_cpu_moe", "n_cpu_ffn", "override_tensors"))
    if not (config.fit and config.n_gpu_layers < 0 and is_open):
        return False
    return any(backend.offload for _, backend in backends) and _has_experts(graphs)


def known_device_rates(backends: Backends, config: Config) -> dict[DeviceName, Rates]:
    """Return the rates of devices as far as they have been measured."""
    rates: dict[DeviceName, Rates] = {}
    for name, backend in backends:
        devices = backend.devices()
        if devices and (device_rates := known_rates(name, devices[0], config.backend_options(name))):
            rates |= {DeviceName(name, number): device_rates for number in range(len(devices))}
    return rates


def place_experts(
    graphs: Sequence[Graph],
    backends: Backends,
    limits: Limits,
    rules: PlacementRules,
    config: Config,
) -> tuple[PlacementRules, int]:
    """Return rules that keep experts of the first layers in host memory, and the number of these layers.

    The rules are unchanged, with the number 0, if GPUs have room for all layers, if that gives no further layer room,
    or if both placements are predicted and it is slower. Experts of a layer are the largest and least used part: of
    the bytes that a token needs, a layer without them leaves more on the GPU than a layer on the CPU does.

    Args:
        graphs: graphs of a model with experts; the first is the one that generates.
        backends: backends in order; one of them is a GPU.
        limits: largest step, and size of the caches.
        rules: wishes of the user.
        config: the configuration, whose ``op_offload`` says if prompts may copy experts to a GPU.
    """
    without = find_placement(graphs, backends, limits, rules)
    if without.n_offloaded == without.n_wanted:
        return rules, 0
    n_layers = max(graph.n_layer for graph in graphs)

    def placed(n_experts: int) -> tuple[PlacementRules, Placement]:
        own = replace(rules, overrides=(*rules.overrides, *host_layers(n_experts, 0)))
        return own, find_placement(graphs, backends, limits, own)

    low, high = 0, n_layers  # the fewest layers with which all others fit lie above the one, up to the other
    best_rules, best = placed(n_layers)
    if best.n_offloaded <= without.n_offloaded:
        return rules, 0
    while best.n_offloaded == best.n_wanted and high - low > 1:
        middle = (low + high) // 2
        tried_rules, tried = placed(middle)
        if tried.n_offloaded == tried.n_wanted:
            high, best_rules, best = middle, tried_rules, tried
        else:
            low = middle
    rates = known_device_rates(backends, config)
    whole = _seconds(without.segments[0], graphs[0], limits, rates, dict(backends))
    if whole is not None:
        partly = _copying_seconds(best, graphs, backends, limits, best_rules, rates, config.op_offload)
        if partly is not None and whole < partly:
            return rules, 0
    return best_rules, high


def experts_in_place(
    graphs: Sequence[Graph],
    backends: Backends,
    limits_with: Callable[[str], Limits],
    rules: PlacementRules,
    without: PlacementRules,
    config: Config,
) -> str:
    """Return the pattern of the experts that GPUs read in host memory; empty if the processor computes those there.

    With ``config.moe_in_place`` auto, GPUs read them if that is predicted to be faster.

    Args:
        graphs: as for ``place_experts``.
        backends: backends in order.
        limits_with: returns the limits with a pattern of weights that GPUs read in host memory.
        rules: rules by which the processor computes experts.
        without: these rules without experts in host memory.
        config: wishes of the user.
    """
    wish, gpus = config.moe_in_place, [backend for _, backend in backends if backend.offload]
    if wish == "off" or config.moe_cache_mib or not gpus or not all(gpu.reads_in_place for gpu in gpus):
        return ""
    is_open = may_move_experts(graphs, backends, config)
    if not (is_open or config.n_cpu_moe) or not _has_experts(graphs):
        return ""
    limits = limits_with("")
    on_host = find_placement(graphs, backends, limits, rules)
    if is_open and rules == without and on_host.n_offloaded == on_host.n_wanted:
        return ""
    by_processor: float | None = math.inf
    if wish == "auto":
        rates = known_device_rates(backends, config)
        by_processor = _copying_seconds(on_host, graphs, backends, limits, rules, rates, config.op_offload)
    if by_processor is None:
        return ""
    if config.n_cpu_moe:
        names = _in_place(graphs, config.n_cpu_moe)
    else:
        names = _fewest_in_place(graphs, backends, limits_with, without)
    if wish == "on" or not names:
        return names
    read = find_placement(graphs, backends, limits_with(names), without).segments[0]
    by_gpu = _seconds(read, graphs[0], limits_with(names), rates, dict(backends))
    return names if by_gpu is not None and by_gpu < by_processor else ""


def _in_place(graphs: Sequence[Graph], n_layers: int, part: str = "") -> str:
    """Return the pattern of weights that GPUs read in host memory.

    They are the experts of the first layers (-1: of all), and embeddings, of which a token needs a single row.

    Args:
        graphs: as for ``place_experts``.
        n_layers: number of layers.
        part: pattern of the experts that the last of these layers has there; empty: all.
    """
    ops: dict[str, set[str]] = {}  # operations by the names of their weights
    nodes = (item for graph in graphs for node in graph.nodes for item in node.parts() if not item.expansion)
    for node in nodes:
        for tensor in node.operands():
            if isinstance(tensor, Weight):
                ops.setdefault(tensor.name, set()).add(node.op)
    rows = [f"^{re.escape(name)}$" for name, of_name in ops.items() if of_name == {"embedding"}]
    whole = host_layers(n_layers - bool(part), 0) if n_layers != bool(part) else []
    partly = [rf"^blk\.{n_layers - 1}\.ffn_({part})_(ch|)exps"] if part else []
    return "|".join([*(item.pattern.pattern for item in whole), *partly, *rows])


def _fewest_in_place(
    graphs: Sequence[Graph], backends: Backends, limits_with: Callable[[str], Limits], rules: PlacementRules
) -> str:
    """Return the pattern of the experts of as few first layers as leave room for the rest; empty if none do.

    Of the last of these layers, only some may be there.
    """

    def fits(n_layers: int, part: str = "") -> bool:
        placed = find_placement(graphs, backends, limits_with(_in_place(graphs, n_layers, part)), rules)
        return placed.n_offloaded == placed.n_wanted

    low, high = 0, max(graph.n_layer for graph in graphs)
    if not fits(high):
        return ""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return _in_place(graphs, high, next((part for part in _PARTS if fits(high, part)), ""))


def stream_parts(
    stream: ExpertStream, graphs: Sequence[Graph], backends: Backends, limits: Limits, rules: PlacementRules
) -> list[StepPart]:
    """Return the costs of the segments of a stream's graph, placed beside ``graphs``."""
    rules = replace(rules, margin=0, overrides=(*rules.overrides, *stream.overrides))
    placed = find_placement([*graphs, stream.graph], backends, limits, rules).segments
    return step_parts(placed[-1], stream.graph, limits, dict(backends))


def _has_experts(graphs: Sequence[Graph]) -> bool:
    weights = (tensor for node in graphs[0].nodes for part in node.parts() for tensor in part.operands())
    return any(isinstance(weight, Weight) and _NAMES.search(weight.name) for weight in weights)


def _copying_seconds(
    placed: Placement,
    graphs: Sequence[Graph],
    backends: Backends,
    limits: Limits,
    rules: PlacementRules,
    rates: Mapping[DeviceName, Rates],
    op_offload: str,
) -> float | None:
    """Return ``_seconds`` of a model with experts in host memory, whose prompts may copy them to a GPU."""
    may_copy = bool(rates) and op_offload != "off"
    stream = stream_experts(graphs[0], graphs, backends, limits, rules) if may_copy else None
    copied = stream_parts(stream, graphs, backends, limits, rules) if stream else []
    return _seconds(placed.segments[0], graphs[0], limits, rates, dict(backends), copied, stream)


def _seconds(
    segments: Sequence[Segment],
    graph: Graph,
    limits: Limits,
    rates: Mapping[DeviceName, Rates],
    backends: Mapping[str, Backend],
    copied: Sequence[StepPart] = (),
    stream: ExpertStream | None = None,
) -> float | None:
    """Return the predicted time of a prompt of a whole batch and as many generated tokens; None without rates.

    ``copied``: costs of the prompt if it is computed by a ``stream``, which counts if that is faster.
    """
    devices = {*(DeviceName(item.backend, item.device) for item in segments), *(part.device for part in copied)}
    if not devices <= set(rates):
        return None
    parts = step_parts(segments, graph, limits, backends)
    n_tokens = min(limits.n_batch, limits.n_ctx)
    prompt = step_seconds(parts, rates, n_tokens, 1, 0)
    if stream is not None:
        prompt = min(prompt, stream_seconds(copied, rates, n_tokens, stream.layer_bytes))
    return prompt + n_tokens * step_seconds(parts, rates, 1, 1, limits.n_ctx // 2)
