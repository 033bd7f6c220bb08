"""Find the largest context that memory has room for, and the placement rules that go with it.

Experts that GPUs lack room for stay in host memory, where the CPU computes them or GPUs read them. Experts of a layer
are its largest and least used part: of the bytes that a token needs, a layer without them leaves more on the GPU than a
layer on the CPU does.
"""

from __future__ import annotations

import logging
import math
import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from pumice.architecture import MAIN
from pumice.backend.step import Limits
from pumice.config import Config
from pumice.engine.placement.overrides import EXPERTS, FEED_FORWARD, host_layers, unmatched_overrides
from pumice.engine.placement.placement import Backends, Placement, PlacementRules, find_placement
from pumice.engine.placement.sizing import BLOCK_SIZE, EngineSizes, devices_in_use, make_limits
from pumice.graph import Graph, Node, Segment, Weight
from pumice.tracing import prompts_of

logger = logging.getLogger("pumice")

_SHARE_IN_PLACE = 0.75  # of the free host memory, which a model may take whose experts GPUs read there
HOST_SHARE = 0.5  # of the host memory free beside a model, which the cache of a context of 0 may take
CACHE_MARGIN = 512 * 2**20  # bytes of each GPU that this cache leaves free
_EXPERTS = re.compile(EXPERTS)


class FittedModel(NamedTuple):
    """Sizes and placement rules with which a model runs."""

    sizes: EngineSizes
    rules: PlacementRules


def fit_model(
    graphs: Mapping[str, Graph], backends: Backends, sizes: EngineSizes, config: Config, host_bytes: int | None
) -> FittedModel:
    """Return the sizes of a model, a context of 0 as ``largest_sizes`` chooses it, and its placement rules.

    If GPUs lack room for the whole model even with ``config.fit_ctx`` tokens, the context is as large as there is room
    for with all experts in host memory, as far as experts may stay there. A warning names each option without effect.

    Args:
        graphs: graphs of the model by name.
        backends: backends in order.
        sizes: largest sizes; those of the whole context that the model was trained for, if ``config.n_ctx`` is 0.
        config: wishes of the user.
        host_bytes: free bytes of host memory; None: unlimited.

    Raises:
        ConfigError, BackendError: an option cannot be followed.
    """
    fitting = _Fitting(graphs, backends, config, host_bytes)
    _warn_of_unused(fitting.traced, backends, config)
    sizes = fitting.context(sizes)
    return fitting.in_place(sizes) or FittedModel(sizes, fitting.experts_aside(sizes))


class _Fitting:
    """A traced model, the backends and the memory that it is fitted to, and the wishes of the user."""

    def __init__(self, graphs: Mapping[str, Graph], backends: Backends, config: Config, host_bytes: int | None) -> None:
        others = (graph for name, graph in graphs.items() if name != MAIN)
        self.traced = [graphs[MAIN], *others, *prompts_of(graphs).values()]
        self._graphs = graphs
        self._backends = backends
        self._config = config
        self._host_bytes = host_bytes
        self._rules = PlacementRules.of(config)
        self._gpus = [backend for _, backend in backends if backend.offload]
        weights = (tensor for part in _parts(self.traced[:1]) for tensor in part.operands())
        self._has_experts = any(isinstance(weight, Weight) and _EXPERTS.search(weight.name) for weight in weights)
        is_open = all(config.is_default(key) for key in ("n_cpu_moe", "n_cpu_ffn", "override_tensors"))
        is_fitted = config.fit and config.n_gpu_layers < 0 and is_open
        self._moves_experts = is_fitted and bool(self._gpus) and self._has_experts
        self._n_layers = max(graph.n_layer for graph in self.traced)

    def context(self, sizes: EngineSizes) -> EngineSizes:
        """Return the sizes of a model, a context of 0 as ``largest_sizes`` chooses it."""
        if self._config.n_ctx or not self._rules.fit:
            return sizes

        def lowered(rules: PlacementRules) -> EngineSizes:
            return largest_sizes(self._graphs, sizes, self._config.fit_ctx, self._room_for_cache(sizes, rules))

        whole = lowered(self._rules)
        if whole.n_ctx == sizes.n_ctx or not self._moves_experts:
            return whole
        limits = make_limits(self._graphs, whole)
        if has_room(self.traced, self._backends, limits, self._rules, self._host_bytes):
            return whole
        longer = lowered(self._aside(-1))
        return longer if self.experts_aside(longer) != self._rules else whole

    def in_place(self, sizes: EngineSizes) -> FittedModel | None:
        """Return sizes and rules with which GPUs read as few experts in host memory as leave room for the rest.

        GPUs that can read them do, unless ``config.moe_in_place`` is off: a token is one submission then, and a prompt
        does not wait for the CPU (bench/notes/performance.md, "Weights in host memory"). None: no experts are read.
        """
        config = self._config
        can_read = bool(self._gpus) and all(gpu.reads_in_place for gpu in self._gpus)
        if config.moe_in_place == "off" or not can_read or not self._has_experts:
            return None
        if not (self._moves_experts or config.n_cpu_moe):
            return None
        rules = PlacementRules.of(replace(config, n_cpu_moe=0))

        def reading(n_layers: int) -> EngineSizes:
            return replace(sizes, in_place=self._read_in_place(n_layers))

        n_layers = config.n_cpu_moe
        if not n_layers:
            n_layers = self._n_layers
            if self._is_whole(sizes, rules) or not self._is_whole(reading(n_layers), rules):
                return None
            n_layers = _fewest(n_layers, lambda n: self._is_whole(reading(n), rules))
        fitted = FittedModel(reading(n_layers), rules)
        limits = make_limits(self._graphs, fitted.sizes)
        n_bytes = _host_bytes(self._placed(fitted.sizes, rules), self._backends, limits)
        if self._host_bytes is None or n_bytes <= _SHARE_IN_PLACE * self._host_bytes:
            return fitted
        if not config.is_default("moe_in_place"):
            logger.warning(
                "moe_in_place: %d bytes take too much of the free host memory, %d", n_bytes, self._host_bytes
            )
        return None

    def experts_aside(self, sizes: EngineSizes) -> PlacementRules:
        """Return rules with which experts that GPUs lack room for stay in host memory, unless the user says which.

        They do not if that gives no further layer room.
        """
        if not self._moves_experts:
            return self._rules
        without = self._placed(sizes, self._rules)
        if without.is_whole:
            return self._rules
        n_layers = self._n_layers
        moving = self._placed(sizes, self._aside(n_layers))
        if moving.n_offloaded <= without.n_offloaded:
            return self._rules
        if moving.is_whole:
            n_layers = _fewest(n_layers, lambda n: self._is_whole(sizes, self._aside(n)))
        logger.info("experts of the first %d layers stay in host memory, so that GPUs hold the rest", n_layers)
        return self._aside(n_layers)

    def _aside(self, n_layers: int) -> PlacementRules:
        """Return the rules with which the experts of the first layers (-1: of all) stay in host memory."""
        return replace(self._rules, overrides=(*self._rules.overrides, *host_layers(n_layers, 0)))

    def _read_in_place(self, n_layers: int) -> str:
        """Return the pattern of weights that GPUs read in host memory.

        They are the experts of the first layers (-1: of all), and embeddings, of which a token needs a single row.
        """
        ops: dict[str, set[str]] = {}  # operations by the names of their weights
        for part in _parts(self.traced):
            for tensor in part.operands() if not part.expansion else ():
                if isinstance(tensor, Weight):
                    ops.setdefault(tensor.name, set()).add(part.op)
        rows = [f"^{re.escape(name)}$" for name, of_name in ops.items() if of_name == {"embedding"}]
        return "|".join([*(item.pattern.pattern for item in host_layers(n_layers, 0)), *rows])

    def _placed(self, sizes: EngineSizes, rules: PlacementRules) -> Placement:
        return find_placement(self.traced, self._backends, make_limits(self._graphs, sizes), rules)

    def _is_whole(self, sizes: EngineSizes, rules: PlacementRules) -> bool:
        return self._placed(sizes, rules).is_whole

    def _room_for_cache(self, sizes: EngineSizes, rules: PlacementRules) -> Callable[[Limits], bool]:
        """Return a function that tells whether the cache of a context of 0 leaves enough memory to other programs.

        Of what is free beside the model with ``config.fit_ctx`` tokens, it may take ``config.cache_share``: all memory
        of GPUs but a margin, and ``HOST_SHARE`` of host memory.
        """
        share, host_bytes = self._config.cache_share, self._host_bytes
        keeping = replace(rules, margin=max(rules.margin, CACHE_MARGIN))

        def used(placement: Placement, limits: Limits) -> tuple[int, int]:
            on_gpus = 0 if share == 1 else _gpu_bytes(placement, self._backends, limits)
            return _host_bytes(placement, self._backends, limits), on_gpus

        least = replace(sizes, n_ctx=min(self._config.fit_ctx, sizes.n_ctx))
        on_host, on_gpus = used(self._placed(least, rules), make_limits(self._graphs, least))
        free = [size for backend in self._gpus if share < 1 for size in backend.free_memory()]
        free_on_gpus = sum(max(0, size - keeping.margin) for size in free if size is not None)
        most_on_host = math.inf if host_bytes is None else on_host + max(0, host_bytes - on_host) * HOST_SHARE * share
        most_on_gpus = math.inf if None in free else on_gpus + max(0, free_on_gpus - on_gpus) * share

        def fits(limits: Limits) -> bool:
            placement = find_placement(self.traced, self._backends, limits, keeping)
            if not placement.is_whole:
                return False
            on_host, on_gpus = used(placement, limits)
            room = min(most_on_host, math.inf if host_bytes is None else host_bytes)
            return on_host <= room and on_gpus <= most_on_gpus

        return fits


def _parts(graphs: Sequence[Graph]) -> Iterator[Node]:
    """Yield the nodes of graphs with the parts of composites."""
    return (part for graph in graphs for node in graph.nodes for part in node.parts())


def _fewest(n_layers: int, fits: Callable[[int], bool]) -> int:
    """Return the least number of layers from 1 on that fits; ``n_layers`` does."""
    return bisect_left(range(n_layers), True, lo=1, key=fits)


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
    later: Collection[int] = (),
) -> bool:
    """Return True if GPUs have room for all layers that ``rules`` ask for, and host memory for what stays there.

    Args:
        graphs: graphs of a model.
        backends: backends in order.
        limits: largest step, and size of the caches.
        rules: wishes of the user.
        host_bytes: free bytes of host memory; None: unlimited.
        later: numbers of the graphs that are compiled later, and take activations in host memory then.
    """
    placement = find_placement(graphs, backends, limits, rules)
    if not placement.is_whole:
        return False
    return host_bytes is None or _host_bytes(placement, backends, limits, later) <= host_bytes


def _host_bytes(placement: Placement, backends: Backends, limits: Limits, later: Collection[int] = ()) -> int:
    """Return the bytes of placed graphs in host memory, without activations of those that are compiled ``later``."""
    named = dict(backends)
    in_host = {name: not backend.offload or backend.shares_host_memory() for name, backend in named.items()}

    def of(is_host: bool) -> list[list[Segment]]:
        return [[item for item in graph if in_host[item.backend] == is_host] for graph in placement.segments]

    here = devices_in_use(of(True), named, limits, later)
    elsewhere = devices_in_use(of(False), named, limits, range(len(placement.segments)))
    in_place = sum(use.n_host_bytes(named[name], limits) for (name, _), use in elsewhere.items())
    return in_place + sum(use.n_bytes(named[name], limits) for (name, _), use in here.items())


def _gpu_bytes(placement: Placement, backends: Backends, limits: Limits) -> int:
    """Return the bytes of placed graphs on GPUs."""
    named = dict(backends)
    on_gpus = [[item for item in segments if named[item.backend].offload] for segments in placement.segments]
    uses = devices_in_use(on_gpus, named, limits)
    return sum(use.n_bytes(named[name], limits) for (name, _), use in uses.items())
