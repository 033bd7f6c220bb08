"""Find the largest context that memory has room for, and the placement rules that go with it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from pumice.architecture import MAIN
from pumice.backend.step import Limits
from pumice.config import Config
from pumice.engine.placement.experts import chosen_rules, experts_in_place, may_move_experts, rules_in_place
from pumice.engine.placement.overrides import EXPERTS, FEED_FORWARD, host_layers, unmatched_overrides
from pumice.engine.placement.placement import (
    Activations,
    Backends,
    Placement,
    PlacementRules,
    find_placement,
    uses_at_load,
    uses_of,
)
from pumice.engine.placement.sizing import BLOCK_SIZE, EngineSizes, make_limits
from pumice.graph import Graph
from pumice.tracing import prompts_of

logger = logging.getLogger("pumice")

_SHARE_IN_PLACE = 0.75  # of the free host memory, which a model may take whose experts GPUs read there


class FittedModel(NamedTuple):
    """Sizes and placement rules with which a model runs."""

    sizes: EngineSizes
    rules: PlacementRules


def fit_model(
    graphs: Mapping[str, Graph], backends: Backends, sizes: EngineSizes, config: Config, host_bytes: int | None
) -> FittedModel:
    """Return the sizes of a model, with a context of 0 lowered to what memory has room for, and its placement rules.

    If GPUs lack room for the whole model even with ``config.fit_ctx`` tokens, the context is as large as there is room
    for with all experts in host memory, as far as experts may stay there; ``chosen_rules`` then says which do, and
    ``experts_in_place`` if GPUs read them. A warning names each option of the placement that has no effect.

    Args:
        graphs: graphs of the model by name.
        backends: backends in order.
        sizes: largest sizes; those of the whole context that the model was trained for, if ``config.n_ctx`` is 0.
        config: wishes of the user.
        host_bytes: free bytes of host memory; None: unlimited.

    Raises:
        ConfigError, BackendError: an option cannot be followed.
    """
    traced = [graphs[MAIN], *(graph for name, graph in graphs.items() if name != MAIN), *prompts_of(graphs).values()]
    _warn_of_unused(traced, backends, config)
    sizes, rules = _fit_context(graphs, traced, backends, sizes, config, host_bytes)

    def limits_with(names: str) -> Limits:
        return make_limits(graphs, replace(sizes, in_place=names))

    names = experts_in_place(traced, backends, limits_with, rules, config)
    if not names:
        return FittedModel(sizes, rules)
    limits, in_place = limits_with(names), rules_in_place(config)
    n_bytes = _host_bytes(find_placement(traced, backends, limits, in_place), traced, backends, limits)
    if host_bytes is None or n_bytes <= _SHARE_IN_PLACE * host_bytes:
        return FittedModel(replace(sizes, in_place=names), in_place)
    if config.moe_in_place == "on":
        logger.warning("moe_in_place: %d bytes take too much of the free host memory, %d", n_bytes, host_bytes)
    return FittedModel(sizes, rules)


def _fit_context(
    graphs: Mapping[str, Graph],
    traced: Sequence[Graph],
    backends: Backends,
    sizes: EngineSizes,
    config: Config,
    host_bytes: int | None,
) -> FittedModel:
    """Return the sizes and rules of a model whose experts the CPU computes if they stay in host memory."""

    def fits(rules: PlacementRules, limits: Limits) -> bool:
        return has_room(traced, backends, limits, rules, host_bytes)

    def lowered(rules: PlacementRules) -> EngineSizes:
        n_ctx = largest_context(graphs, sizes, config.fit_ctx, lambda limits: fits(rules, limits))
        return replace(sizes, n_ctx=n_ctx)

    rules = PlacementRules.of(config)
    if config.n_ctx or not rules.fit:
        return FittedModel(sizes, chosen_rules(traced, backends, make_limits(graphs, sizes), config))
    whole = lowered(rules)
    limits = make_limits(graphs, whole)
    if whole.n_ctx < sizes.n_ctx and may_move_experts(traced, backends, config) and not fits(rules, limits):
        on_host = replace(rules, overrides=(*rules.overrides, *host_layers(-1, 0)))
        longer = lowered(on_host)
        moved = chosen_rules(traced, backends, make_limits(graphs, longer), config)
        if moved != rules:
            return FittedModel(longer, moved)
    return FittedModel(whole, chosen_rules(traced, backends, limits, config))


def _warn_of_unused(traced: Sequence[Graph], backends: Backends, config: Config) -> None:
    """Log a warning for each option that places nothing: layers or a GPU without a GPU, patterns without tensors."""
    has_gpu = any(backend.offload for _, backend in backends)
    if config.n_gpu_layers > 0 and not has_gpu:
        logger.warning("n_gpu_layers: %d has no effect: no GPU is in use; see `pumice devices`", config.n_gpu_layers)
    for name, count, pattern in (
        ("n_cpu_moe", config.n_cpu_moe, EXPERTS),
        ("n_cpu_ffn", config.n_cpu_ffn, FEED_FORWARD),
    ):
        if count and unmatched_overrides(traced, [f"{pattern}=CPU"]):
            logger.warning("%s: %d has no effect: no layer of the model has such tensors", name, count)
    if config.main_gpu and not has_gpu:
        logger.warning("main_gpu: %d has no effect: no GPU is in use", config.main_gpu)
    elif config.main_gpu and config.split_mode != "none":
        reason = f"split_mode is {config.split_mode}; it chooses a GPU with --split-mode none"
        logger.warning("main_gpu: %d has no effect: %s", config.main_gpu, reason)
    for text in unmatched_overrides(traced, config.override_tensors):
        logger.warning("override_tensors: %s has no effect: no tensor of the model has a matching name", text)


def largest_context(graphs: Mapping[str, Graph], sizes: EngineSizes, least: int, fits: Callable[[Limits], bool]) -> int:
    """Return the largest context up to ``sizes.n_ctx``, in whole blocks, that ``fits``; ``least`` if none above does.

    ``fits`` must be monotone: if a context fits, smaller ones do.
    """
    if least >= sizes.n_ctx or fits(make_limits(graphs, sizes)):
        return sizes.n_ctx
    low, high = least // BLOCK_SIZE, sizes.n_ctx // BLOCK_SIZE + 1  # blocks: fits or is the least, does not fit
    while high - low > 1:
        middle = (low + high) // 2
        if fits(make_limits(graphs, replace(sizes, n_ctx=middle * BLOCK_SIZE))):
            low = middle
        else:
            high = middle
    return max(low * BLOCK_SIZE, least)


def has_room(
    graphs: Sequence[Graph],
    backends: Backends,
    limits: Limits,
    rules: PlacementRules,
    host_bytes: int | None,
    later: Collection[Graph] = (),
) -> bool:
    """Return True if GPUs have room for all layers that ``rules`` ask for, and host memory for what stays there.

    Args:
        graphs: graphs of a model.
        backends: backends in order.
        limits: largest step, and size of the caches.
        rules: wishes of the user.
        host_bytes: free bytes of host memory; None: unlimited.
        later: graphs that are compiled later, and take activations in host memory then.
    """
    placement = find_placement(graphs, backends, limits, rules)
    if placement.n_offloaded < placement.n_wanted:
        return False
    return host_bytes is None or _host_bytes(placement, graphs, backends, limits, later) <= host_bytes


def _host_bytes(
    placement: Placement, graphs: Sequence[Graph], backends: Backends, limits: Limits, later: Collection[Graph] = ()
) -> int:
    """Return the bytes of placed graphs in host memory, without activations of those that are compiled ``later``."""
    named = dict(backends)
    on_host = [[item for item in segments if not named[item.backend].offload] for segments in placement.segments]
    is_later = [any(graph is item for item in later) for graph in graphs]
    uses = uses_at_load(on_host, is_later, named, limits)
    segments = [item for graph in placement.segments for item in graph if named[item.backend].offload]
    on_gpus = uses_of(((segment, Activations(0, 0)) for segment in segments), named)
    in_place = sum(use.n_host_bytes(named[name], limits) for (name, _), use in on_gpus.items())
    return in_place + sum(use.n_bytes(named[name], limits) for (name, _), use in uses.items())
