"""Choose where the experts of layers lie that GPUs lack room for: host memory, where CPU or GPU computes them."""

from __future__ import annotations

import logging
import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace

from pumice.backend.step import Limits
from pumice.config import Config
from pumice.engine.placement.overrides import EXPERTS, host_layers
from pumice.engine.placement.placement import Backends, Placement, PlacementRules, find_placement
from pumice.graph import Graph, Weight

logger = logging.getLogger("pumice")

_NAMES = re.compile(EXPERTS)


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

    They do not if that gives no further layer room. Experts of a layer are its largest and least used part: of the
    bytes that a token needs, a layer without them leaves more on the GPU than a layer on the CPU does.

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
    logger.info("experts of the first %d layers stay in host memory, so that GPUs hold the rest", n_layers)
    return moved(n_layers)


def experts_in_place(
    graphs: Sequence[Graph],
    backends: Backends,
    limits_with: Callable[[str], Limits],
    config: Config,
) -> str:
    """Return the pattern of the experts that GPUs read in host memory, as few as leave room for the rest; or nothing.

    GPUs that can read them do, unless ``config.moe_in_place`` is off: a token is one submission then, and a prompt does
    not wait for the CPU (bench/notes/performance.md, "Weights in host memory").

    Args:
        graphs: as for ``chosen_rules``.
        backends: backends in order.
        limits_with: returns the limits with a pattern of weights that GPUs read in host memory.
        config: wishes of the user.
    """
    gpus = [backend for _, backend in backends if backend.offload]
    if config.moe_in_place == "off" or not gpus or not all(gpu.reads_in_place for gpu in gpus):
        return ""
    is_open = may_move_experts(graphs, backends, config)
    if not (is_open or config.n_cpu_moe) or not _has_experts(graphs):
        return ""
    if config.n_cpu_moe:
        return _in_place(graphs, config.n_cpu_moe)
    rules = rules_in_place(config)
    if _is_whole(find_placement(graphs, backends, limits_with(""), rules)):
        return ""

    def fits(n_layers: int) -> bool:
        return _is_whole(find_placement(graphs, backends, limits_with(_in_place(graphs, n_layers)), rules))

    n_layers = max(graph.n_layer for graph in graphs)
    return _in_place(graphs, _fewest(n_layers, fits)) if fits(n_layers) else ""


def rules_in_place(config: Config) -> PlacementRules:
    """Return the rules of a configuration whose experts in host memory are read by GPUs."""
    return PlacementRules.of(config.model_copy(update={"n_cpu_moe": 0}))


def _is_whole(placed: Placement) -> bool:
    """Return True if GPUs have room for all layers that should be there."""
    return placed.n_offloaded == placed.n_wanted


def _fewest(n_layers: int, fits: Callable[[int], bool]) -> int:
    """Return the least number of layers from 1 on that fits; ``n_layers`` does."""
    return bisect_left(range(n_layers), True, lo=1, key=fits)


def _in_place(graphs: Sequence[Graph], n_layers: int) -> str:
    """Return the pattern of weights that GPUs read in host memory.

    They are the experts of the first layers (-1: of all), and embeddings, of which a token needs a single row.

    Args:
        graphs: as for ``chosen_rules``.
        n_layers: number of layers.
    """
    ops: dict[str, set[str]] = {}  # operations by the names of their weights
    nodes = (item for graph in graphs for node in graph.nodes for item in node.parts() if not item.expansion)
    for node in nodes:
        for tensor in node.operands():
            if isinstance(tensor, Weight):
                ops.setdefault(tensor.name, set()).add(node.op)
    rows = [f"^{re.escape(name)}$" for name, of_name in ops.items() if of_name == {"embedding"}]
    return "|".join([*(item.pattern.pattern for item in host_layers(n_layers, 0)), *rows])


def _has_experts(graphs: Sequence[Graph]) -> bool:
    weights = (tensor for node in graphs[0].nodes for part in node.parts() for tensor in part.operands())
    return any(isinstance(weight, Weight) and _NAMES.search(weight.name) for weight in weights)
