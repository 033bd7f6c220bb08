"""Choose where the experts of layers lie that GPUs lack room for: host memory, where CPU or GPU computes them."""

from __future__ import annotations

import logging
import math
import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pumice.backend.step import Limits
from pumice.config import Config
from pumice.engine.placement.costs import step_parts
from pumice.engine.placement.overrides import EXPERTS, DeviceName, host_layers
from pumice.engine.placement.placement import Backends, Placement, PlacementRules, find_placement
from pumice.engine.placement.rates import Rates, known_device_rates, step_seconds
from pumice.graph import Graph, Weight

logger = logging.getLogger("pumice")

_NAMES = re.compile(EXPERTS)
_PARTS = "down", "up|gate|gate_up"  # experts of a layer that GPUs read in host memory alone, the fewest bytes first


def may_move_experts(graphs: Sequence[Graph], backends: Backends, config: Config) -> bool:
    """Return True if a model has experts and a GPU, and the configuration leaves it open where layers and experts lie.

    ``graphs`` are as for ``chosen_rules``.
    """
    is_open = all(config.is_default(key) for key in ("n_cpu_moe", "n_cpu_ffn", "override_tensors"))
    if not (config.fit and config.n_gpu_layers < 0 and is_open):
        return False
    return any(backend.offload for _, backend in backends) and _has_experts(graphs)


def chosen_rules(graphs: Sequence[Graph], backends: Backends, limits: Limits, config: Config) -> PlacementRules:
    """Return the rules of a configuration; experts that GPUs lack room for stay in host memory, unless it says which.

    They do not if that gives no further layer room, or if measured rates predict whole layers on the CPU to be faster.
    Experts of a layer are its largest and least used part: of the bytes that a token needs, a layer without them
    leaves more on the GPU than a layer on the CPU does.

    Args:
        graphs: graphs of a model; the first is the one that generates.
        backends: backends in order.
        limits: largest step, and size of the caches.
        config: wishes of the user.
    """
    rules = PlacementRules.of(config)
    if not may_move_experts(graphs, backends, config):
        return rules
    without = find_placement(graphs, backends, limits, rules)
    if _is_whole(without):
        return rules

    def moved(n_layers: int) -> PlacementRules:
        return replace(rules, overrides=(*rules.overrides, *host_layers(n_layers, 0)))

    n_layers = max(graph.n_layer for graph in graphs)
    moving = find_placement(graphs, backends, limits, moved(n_layers))
    if moving.n_offloaded <= without.n_offloaded:
        return rules
    if _is_whole(moving):
        n_layers = _fewest(n_layers, lambda n: _is_whole(find_placement(graphs, backends, limits, moved(n))))
        moving = find_placement(graphs, backends, limits, moved(n_layers))
    rates = known_device_rates(backends, config)
    whole, partly = (_seconds(placed, graphs[0], backends, limits, rates) for placed in (without, moving))
    if whole is not None and partly is not None and whole < partly:
        return rules
    logger.info("experts of the first %d layers stay in host memory, so that GPUs hold the rest", n_layers)
    return moved(n_layers)


def experts_in_place(
    graphs: Sequence[Graph],
    backends: Backends,
    limits_with: Callable[[str], Limits],
    rules: PlacementRules,
    config: Config,
) -> str:
    """Return the pattern of the experts that GPUs read in host memory; empty if the CPU computes those there.

    With ``config.moe_in_place`` auto, GPUs read them if that is predicted to be faster.

    Args:
        graphs: as for ``chosen_rules``.
        backends: backends in order.
        limits_with: returns the limits with a pattern of weights that GPUs read in host memory.
        rules: the chosen rules, by which the CPU computes experts.
        config: wishes of the user.
    """
    wish, gpus = config.moe_in_place, [backend for _, backend in backends if backend.offload]
    if wish == "off" or not gpus or not all(gpu.reads_in_place for gpu in gpus):
        return ""
    is_open = may_move_experts(graphs, backends, config)
    if not (is_open or config.n_cpu_moe) or not _has_experts(graphs):
        return ""
    without, rates = rules_in_place(config), known_device_rates(backends, config)
    on_host = find_placement(graphs, backends, limits_with(""), rules)
    if is_open and rules == without and _is_whole(on_host):
        return ""
    by_cpu = _seconds(on_host, graphs[0], backends, limits_with(""), rates)
    if wish == "auto" and by_cpu is None:
        return ""
    if config.n_cpu_moe:
        names = _in_place(graphs, config.n_cpu_moe)
    else:
        names = _fewest_in_place(graphs, backends, limits_with, without)
    if wish == "on" or not names:
        return names
    read = find_placement(graphs, backends, limits_with(names), without)
    by_gpu = _seconds(read, graphs[0], backends, limits_with(names), rates)
    return names if by_gpu is not None and by_gpu < (by_cpu or math.inf) else ""


def rules_in_place(config: Config) -> PlacementRules:
    """Return the rules of a configuration whose experts in host memory are read by GPUs."""
    return PlacementRules.of(config.model_copy(update={"n_cpu_moe": 0}))


def _is_whole(placed: Placement) -> bool:
    """Return True if GPUs have room for all layers that should be there."""
    return placed.n_offloaded == placed.n_wanted


def _fewest(n_layers: int, fits: Callable[[int], bool]) -> int:
    """Return the least number of layers from 1 on that fits; ``n_layers`` does."""
    return bisect_left(range(n_layers), True, lo=1, key=fits)


def _in_place(graphs: Sequence[Graph], n_layers: int, part: str = "") -> str:
    """Return the pattern of weights that GPUs read in host memory.

    They are the experts of the first layers (-1: of all), and embeddings, of which a token needs a single row.

    Args:
        graphs: as for ``chosen_rules``.
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
        return _is_whole(find_placement(graphs, backends, limits_with(_in_place(graphs, n_layers, part)), rules))

    n_layers = max(graph.n_layer for graph in graphs)
    if not fits(n_layers):
        return ""
    fewest = _fewest(n_layers, fits)
    return _in_place(graphs, fewest, next((part for part in _PARTS if fits(fewest, part)), ""))


def _has_experts(graphs: Sequence[Graph]) -> bool:
    weights = (tensor for node in graphs[0].nodes for part in node.parts() for tensor in part.operands())
    return any(isinstance(weight, Weight) and _NAMES.search(weight.name) for weight in weights)


def _seconds(
    placed: Placement, graph: Graph, backends: Backends, limits: Limits, rates: Mapping[DeviceName, Rates]
) -> float | None:
    """Return the predicted time of a prompt of a whole batch and as many generated tokens; None without rates."""
    parts = step_parts(placed.segments[0], graph, limits, dict(backends))
    if not all(part.device in rates for part in parts):
        return None
    n_tokens = min(limits.n_batch, limits.n_ctx)
    generation = n_tokens * step_seconds(parts, rates, 1, 1, limits.n_ctx // 2)
    return step_seconds(parts, rates, n_tokens, 1, 0) + generation
