"""Find the largest context that memory has room for, and the placement rules that go with it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from pumice.architecture import MAIN
from pumice.backend.step import Limits
from pumice.config import Config
from pumice.engine.placement.costs import step_parts
from pumice.engine.placement.expert_cache import ExpertCache, cache_experts
from pumice.engine.placement.expert_stream import ExpertStream, stream_experts
from pumice.engine.placement.experts import (
    chosen_rules,
    experts_in_place,
    known_device_rates,
    may_move_experts,
    stream_parts,
)
from pumice.engine.placement.matrix_stream import stream_matrices
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
from pumice.engine.placement.rates import step_seconds, stream_seconds
from pumice.engine.placement.sizing import BLOCK_SIZE, EngineSizes, make_limits
from pumice.engine.placement.tracing import prompts_of
from pumice.graph import Graph

logger = logging.getLogger("pumice")

READY_SHARE = 0.75
"""Share of the free host memory that a model may take together with copies of its weights for a GPU."""


class FittedModel(NamedTuple):
    """A model as it will run: graphs, sizes, placement rules, copies of experts, and their stream for prompts."""

    graphs: dict[str, Graph]
    sizes: EngineSizes
    rules: PlacementRules
    experts: ExpertCache | None = None
    stream: ExpertStream | None = None


def fit_graphs(
    graphs: Mapping[str, Graph], backends: Backends, sizes: EngineSizes, config: Config, host_bytes: int | None
) -> FittedModel:
    """Return a model as ``fit_model`` fits it; with ``config.moe_cache_mib`` its graphs use copies of experts.

    The arguments are those of ``fit_model``. A warning names each option of the placement that has no effect. Raises
    ConfigError.
    """
    traced = [graphs[MAIN], *(graph for name, graph in graphs.items() if name != MAIN), *prompts_of(graphs).values()]
    _warn_of_unused(traced, backends, config)
    n_mib = config.moe_cache_mib

    def fitted_with(n_reserved: int) -> tuple[EngineSizes, PlacementRules]:
        reserving = config.model_copy(update={"fit_target": config.fit_target + n_reserved})
        return fit_model(graphs, traced, backends, sizes, reserving, host_bytes)

    def stream_of(first: int = 0) -> ExpertStream | None:
        return _stream(graphs[MAIN], traced, backends, make_limits(graphs, fitted), rules, config, first)

    fitted, rules = fitted_with(n_mib)
    read = _in_place(graphs, traced, backends, fitted, rules, config, host_bytes)
    if read is not None:
        return FittedModel(dict(graphs), *read)
    stream = stream_of()
    if stream is not None:
        fitted, rules = fitted_with(n_mib + -(-stream.n_bytes // 2**20))
        stream = stream_of()
    own = replace(rules, margin=config.fit_target * 2**20)
    while stream is not None:
        streaming = replace(own, overrides=(*own.overrides, *stream.overrides))
        placed = find_placement([*traced, stream.graph], backends, make_limits(graphs, fitted), streaming)
        if stream.overrides or stream.mixtures[0].product.layer >= placed.first_offloaded:
            own = streaming
            break
        stream = stream_of(placed.first_offloaded)  # its own memory has moved layers to the processor
    if stream is not None:
        on_host = _host_bytes(placed, [*traced, stream.graph], backends, make_limits(graphs, fitted))
        has_memory = host_bytes is not None and on_host + sum(stream.layer_bytes) <= READY_SHARE * host_bytes
        reads_host = all(backend.keeps_ready for _, backend in backends if backend.offload)
        stream = replace(stream, keeps_ready=has_memory and reads_host)
    if not n_mib:
        return FittedModel(dict(graphs), fitted, own, None, stream)
    divided, experts = cache_experts(graphs, backends, make_limits(graphs, fitted), rules, n_mib * 2**20)
    return FittedModel(divided, fitted, own, experts, stream)


def _in_place(
    graphs: Mapping[str, Graph],
    traced: Sequence[Graph],
    backends: Backends,
    sizes: EngineSizes,
    rules: PlacementRules,
    config: Config,
    host_bytes: int | None,
) -> tuple[EngineSizes, PlacementRules] | None:
    """Return the sizes and rules with which GPUs read experts in host memory; None if the processor computes them.

    ``sizes`` and ``rules`` are those with which it would.
    """
    without = PlacementRules.of(config.model_copy(update={"n_cpu_moe": 0}))

    def limits_with(names: str) -> Limits:
        return make_limits(graphs, replace(sizes, in_place=names))

    names = experts_in_place(traced, backends, limits_with, rules, without, config)
    if not names:
        return None
    limits = limits_with(names)
    n_bytes = _host_bytes(find_placement(traced, backends, limits, without), traced, backends, limits)
    if host_bytes is not None and n_bytes > READY_SHARE * host_bytes:
        if config.moe_in_place == "on":
            logger.warning("moe_in_place: %d bytes take too much of the free host memory, %d", n_bytes, host_bytes)
        return None
    return replace(sizes, in_place=names), without


def _stream(
    graph: Graph,
    traced: Sequence[Graph],
    backends: Backends,
    limits: Limits,
    rules: PlacementRules,
    config: Config,
    first: int,
) -> ExpertStream | None:
    """Return the stream of experts for steps with many tokens; None if it is not wanted, or predicted to be slower.

    Experts of layers before ``first`` are not copied. Its ``least`` is the least number of tokens, a power of two, for
    which measured rates predict it to be faster.
    """
    if config.op_offload == "off":
        return None
    stream = stream_experts(graph, traced, backends, limits, rules, first)
    stream = stream or stream_matrices(graph, traced, backends, limits, rules)
    if stream is None or config.op_offload == "on":
        return stream
    rates = known_device_rates(backends, config)
    placed = find_placement(traced, backends, limits, replace(rules, margin=0)).segments[0]
    own = step_parts(placed, graph, limits, dict(backends))
    streamed = stream_parts(stream, traced, backends, limits, rules)
    if not all(part.device in rates for part in (*own, *streamed)):
        return None
    for n_tokens in (32, 64, 128, 256, 512, 1024, 2048):
        if n_tokens > limits.n_batch:
            break
        if stream_seconds(streamed, rates, n_tokens, stream.layer_bytes) < step_seconds(own, rates, n_tokens, 1, 0):
            return replace(stream, least=n_tokens)
    return None


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


def fit_model(
    graphs: Mapping[str, Graph],
    traced: Sequence[Graph],
    backends: Backends,
    sizes: EngineSizes,
    config: Config,
    host_bytes: int | None,
) -> tuple[EngineSizes, PlacementRules]:
    """Return the sizes of a model, with a context of 0 lowered to what memory has room for, and its placement rules.

    If GPUs lack room for the whole model even with ``config.fit_ctx`` tokens, the context is as large as there is room
    for with all experts in host memory, as far as experts may stay there; ``chosen_rules`` then says which do.

    Args:
        graphs: graphs of the model by name.
        traced: these and those of prompts; the first is the one that generates.
        backends: backends in order.
        sizes: largest sizes; those of the whole context that the model was trained for, if ``config.n_ctx`` is 0.
        config: wishes of the user.
        host_bytes: free bytes of host memory; None: unlimited.
    """

    def fits(rules: PlacementRules, limits: Limits) -> bool:
        return has_room(traced, backends, limits, rules, host_bytes)

    def lowered(rules: PlacementRules) -> EngineSizes:
        n_ctx = largest_context(graphs, sizes, config.fit_ctx, lambda limits: fits(rules, limits))
        return replace(sizes, n_ctx=n_ctx)

    rules = PlacementRules.of(config)
    if config.n_ctx or not rules.fit:
        return sizes, chosen_rules(traced, backends, make_limits(graphs, sizes), config)
    whole = lowered(rules)
    limits = make_limits(graphs, whole)
    if whole.n_ctx < sizes.n_ctx and may_move_experts(traced, backends, config) and not fits(rules, limits):
        on_host = replace(rules, overrides=(*rules.overrides, *host_layers(-1, 0)))
        longer = lowered(on_host)
        moved = chosen_rules(traced, backends, make_limits(graphs, longer), config)
        if moved != rules:
            return longer, moved
    return whole, chosen_rules(traced, backends, limits, config)


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
