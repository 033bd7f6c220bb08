"""Find the largest context that memory has room for, and the placement rules that go with it."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from pumice.architecture import MAIN
from pumice.backend import Backend
from pumice.backend.step import Limits
from pumice.config import Config
from pumice.engine.placement.experts import chosen_rules, experts_in_place, may_move_experts, rules_in_place
from pumice.engine.placement.overrides import EXPERTS, FEED_FORWARD, host_layers, unmatched_overrides
from pumice.engine.placement.placement import (
    Activations,
    Backends,
    Placement,
    PlacementRules,
    devices_in_use,
    find_placement,
    uses_at_load,
    uses_of,
)
from pumice.engine.placement.sizing import BLOCK_SIZE, EngineSizes, make_limits
from pumice.graph import Graph
from pumice.tracing import prompts_of

logger = logging.getLogger("pumice")

_SHARE_IN_PLACE = 0.75  # of the free host memory, which a model may take whose experts GPUs read there
HOST_SHARE = 0.5  # of the host memory free beside a model, which the cache of a context of 0 may take
CACHE_MARGIN = 512 * 2**20  # bytes of each GPU that this cache leaves free


class FittedModel(NamedTuple):
    """Sizes and placement rules with which a model runs."""

    sizes: EngineSizes
    rules: PlacementRules


def fit_model(
    graphs: Mapping[str, Graph], backends: Backends, sizes: EngineSizes, config: Config, host_bytes: int | None
) -> FittedModel:
    """Return the sizes of a model, a context of 0 as ``largest_sizes`` chooses it, and its placement rules.

    If GPUs lack room for the whole model even with ``config.fit_ctx`` tokens, the context is as large as there is room
    for with all experts in host memory, as far as experts may stay there; ``experts_in_place`` then says which GPUs
    read there, or ``chosen_rules`` which the CPU computes. A warning names each option without effect.

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
    sizes = _fit_context(graphs, traced, backends, sizes, config, host_bytes)

    def limits_with(names: str) -> Limits:
        return make_limits(graphs, replace(sizes, in_place=names))

    if names := experts_in_place(traced, backends, limits_with, config):
        limits, rules = limits_with(names), rules_in_place(config)
        n_bytes = _host_bytes(find_placement(traced, backends, limits, rules), traced, backends, limits)
        if host_bytes is None or n_bytes <= _SHARE_IN_PLACE * host_bytes:
            return FittedModel(replace(sizes, in_place=names), rules)
        if not config.is_default("moe_in_place"):
            logger.warning("moe_in_place: %d bytes take too much of the free host memory, %d", n_bytes, host_bytes)
    return FittedModel(sizes, chosen_rules(traced, backends, limits_with(""), config))


def _fit_context(
    graphs: Mapping[str, Graph],
    traced: Sequence[Graph],
    backends: Backends,
    sizes: EngineSizes,
    config: Config,
    host_bytes: int | None,
) -> EngineSizes:
    """Return the sizes of a model, a context of 0 as ``largest_sizes`` chooses it."""
    rules = PlacementRules.of(config)
    if config.n_ctx or not rules.fit:
        return sizes

    def lowered(rules: PlacementRules) -> EngineSizes:
        fits = _room_for_cache(graphs, traced, backends, sizes, config, rules, host_bytes)
        return largest_sizes(graphs, sizes, config.fit_ctx, fits)

    whole = lowered(rules)
    if whole.n_ctx == sizes.n_ctx or not may_move_experts(traced, backends, config):
        return whole
    if has_room(traced, backends, make_limits(graphs, whole), rules, host_bytes):
        return whole
    longer = lowered(replace(rules, overrides=(*rules.overrides, *host_layers(-1, 0))))
    moves = chosen_rules(traced, backends, make_limits(graphs, longer), config) != rules
    return longer if moves else whole


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


def largest_sizes(
    graphs: Mapping[str, Graph], sizes: EngineSizes, least: int, fits: Callable[[Limits], bool]
) -> EngineSizes:
    """Return sizes with the largest context that ``fits``, and a cache with room for several if it is whole.

    The cache has room for ``sizes.n_parallel`` contexts, or for fewer in steps of a quarter.
    """
    lowered = replace(sizes, n_ctx=largest_context(graphs, sizes, least, fits))
    if lowered.n_ctx < sizes.n_ctx or not make_limits(graphs, sizes).n_blocks:
        return lowered

    def with_quarters(n: int) -> EngineSizes:
        return replace(sizes, n_cache=sizes.n_ctx * n // 4)

    low, high = 4, 4 * sizes.n_parallel + 1  # quarters of a context: fit, do not fit
    middle = high - 1  # most often all fit
    while high - low > 1:
        low, high = (middle, high) if fits(make_limits(graphs, with_quarters(middle))) else (low, middle)
        middle = (low + high) // 2
    return with_quarters(low)


def _room_for_cache(
    graphs: Mapping[str, Graph],
    traced: Sequence[Graph],
    backends: Backends,
    sizes: EngineSizes,
    config: Config,
    rules: PlacementRules,
    host_bytes: int | None,
) -> Callable[[Limits], bool]:
    """Return a function that tells whether the cache of a context of 0 leaves enough memory to other programs.

    Of what is free beside the model with ``config.fit_ctx`` tokens, it may take ``config.cache_share``: all memory of
    GPUs but a margin, and ``HOST_SHARE`` of host memory.
    """
    share = config.cache_share
    keeping = replace(rules, margin=max(rules.margin, CACHE_MARGIN))

    def used(placement: Placement, limits: Limits) -> tuple[int, int]:
        on_gpus = 0 if share == 1 else _gpu_bytes(placement, dict(backends), limits)
        return _host_bytes(placement, traced, backends, limits), on_gpus

    least = make_limits(graphs, replace(sizes, n_ctx=min(config.fit_ctx, sizes.n_ctx)))
    on_host, on_gpus = used(find_placement(traced, backends, least, rules), least)
    gpus = [backend for _, backend in backends if backend.offload and share < 1]
    free = [size for backend in gpus for size in backend.free_memory()]
    free_on_gpus = sum(max(0, size - keeping.margin) for size in free if size is not None)
    most_on_host = math.inf if host_bytes is None else on_host + max(0, host_bytes - on_host) * HOST_SHARE * share
    most_on_gpus = math.inf if None in free else on_gpus + max(0, free_on_gpus - on_gpus) * share

    def fits(limits: Limits) -> bool:
        placement = find_placement(traced, backends, limits, keeping)
        if placement.n_offloaded < placement.n_wanted:
            return False
        on_host, on_gpus = used(placement, limits)
        return on_host <= min(most_on_host, math.inf if host_bytes is None else host_bytes) and on_gpus <= most_on_gpus

    return fits


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
    used = {item.backend for segments in placement.segments for item in segments}
    in_host = {name: not named[name].offload or named[name].shares_host_memory() for name in used}
    on_host = [[item for item in segments if in_host[item.backend]] for segments in placement.segments]
    is_later = [any(graph is item for item in later) for graph in graphs]
    uses = uses_at_load(on_host, is_later, named, limits)
    segments = [item for graph in placement.segments for item in graph if not in_host[item.backend]]
    on_gpus = uses_of(((segment, Activations(0, 0)) for segment in segments), named)
    in_place = sum(use.n_host_bytes(named[name], limits) for (name, _), use in on_gpus.items())
    return in_place + sum(use.n_bytes(named[name], limits) for (name, _), use in uses.items())


def _gpu_bytes(placement: Placement, backends: Mapping[str, Backend], limits: Limits) -> int:
    """Return the bytes of placed graphs on GPUs."""
    on_gpus = [[item for item in segments if backends[item.backend].offload] for segments in placement.segments]
    uses = devices_in_use(on_gpus, backends, limits)
    return sum(use.n_bytes(backends[name], limits) for (name, _), use in uses.items())
