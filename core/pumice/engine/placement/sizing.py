"""Size steps and caches from the user's settings and the needs of graphs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pumice.architecture import ENCODER, MAIN
from pumice.backend.step import Limits
from pumice.graph import Graph, KVState, RecurrentState, State

BLOCK_SIZE = 32  # positions in one block of the KV cache
MOST_TEXTS = 64  # per step of a model without a cache
MOST_FILLED = 256  # rows of logits per step of a diffusion model
CHECKPOINT_BYTES = 512 * 2**20  # of copies of recurrent states, unless two of them need more


@dataclass(frozen=True)
class EngineSizes:
    """The user's settings; see ``Limits``. ``n_cache``: positions that the KV cache holds; 0: ``n_ctx``."""

    n_ctx: int
    n_batch: int
    n_parallel: int
    kv_type: str
    in_place: str = ""
    n_cache: int = 0


def make_limits(graphs: Mapping[str, Graph], sizes: EngineSizes) -> Limits:
    """Return limits: every layer can hold ``n_cache`` positions, one with a window only those within reach.

    If a step must contain whole sequences, it has room for the longest.
    """
    if any(graph.needs_whole_sequences for graph in graphs.values()):
        sizes = replace(sizes, n_batch=max(sizes.n_batch, sizes.n_ctx))
    if not states_of_all(graphs):
        sizes = replace(sizes, n_parallel=max(sizes.n_parallel, MOST_TEXTS))
    n_whole = -(-(sizes.n_cache or sizes.n_ctx) // BLOCK_SIZE)
    n_blocks = {}
    for window in attention_windows(states_of_all(graphs)):
        reach = -(-(window + sizes.n_batch) // BLOCK_SIZE) + 1
        n_blocks[window] = min(n_whole, reach * sizes.n_parallel) if window else n_whole
    if ENCODER in graphs:
        n_blocks[0] = 2 * n_whole  # a context of the encoder, and one of the decoder
    return Limits(
        n_ctx=sizes.n_ctx,
        n_batch=sizes.n_batch,
        n_outputs=max(MOST_FILLED if graphs[MAIN].needs_whole_sequences else 64, sizes.n_parallel),
        n_seqs=sizes.n_parallel,
        block_size=BLOCK_SIZE,
        n_blocks=n_blocks,
        kv_type=sizes.kv_type,
        more_sizes={name: most for graph in graphs.values() for name, most in graph.sizes.items()},
        n_checkpoints=_n_checkpoints(states_of_all(graphs), sizes.n_parallel),
        in_place=sizes.in_place,
    )


def _n_checkpoints(states: Sequence[State], n_seqs: int) -> int:
    """Return the number of copies of recurrent states: one per sequence that runs ahead, and more for prefixes."""
    n_bytes = sum(4 * math.prod(state.shape) for state in states if isinstance(state, RecurrentState))
    if not n_bytes:
        return 0
    return max(2, min(2 * n_seqs + 14, CHECKPOINT_BYTES // n_bytes))


def states_of_all(graphs: Mapping[str, Graph]) -> list[State]:
    """Return every distinct state of a model."""
    return list(dict.fromkeys(state for graph in graphs.values() for state in graph.states))


def attention_windows(states: Sequence[State]) -> list[int]:
    """Return the distinct attention windows; layers with the same window share block tables."""
    return sorted({state.window for state in states if isinstance(state, KVState)})
