"""Find the largest context that memory has room for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pumice.backend.step import Limits
from pumice.engine.placement import Backends, PlacementRules, devices_in_use, find_placement
from pumice.engine.sizing import BLOCK_SIZE, EngineSizes, make_limits
from pumice.graph import Graph


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
    graphs: Sequence[Graph], backends: Backends, limits: Limits, rules: PlacementRules, host_bytes: int | None
) -> bool:
    """Return True if GPUs have room for all layers that ``rules`` ask for, and host memory for what stays there.

    Args:
        graphs: graphs of a model.
        backends: backends in order.
        limits: largest step, and size of the caches.
        rules: wishes of the user.
        host_bytes: free bytes of host memory; None: unlimited.
    """
    placement = find_placement(graphs, backends, limits, rules)
    if placement.n_offloaded < placement.n_wanted:
        return False
    named = dict(backends)
    on_host = [[item for item in segments if not named[item.backend].offload] for segments in placement.segments]
    uses = devices_in_use(on_host, named, limits)
    n_bytes = sum(use.n_bytes(named[name], limits) for (name, _), use in uses.items())
    return host_bytes is None or n_bytes <= host_bytes
