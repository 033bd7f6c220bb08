"""How large a step and the caches are: from what the user chooses, and what the graphs need."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pumice.architecture import ENCODER, MAIN
from pumice.graph import Graph, KVState, RecurrentState, State
from pumice.step import Limits

BLOCK_SIZE = 32  # positions in one block of the KV cache
MOST_TEXTS = 64  # in one step of a model without a cache
MOST_FILLED = 256  # rows of logits in one, where a text is filled by diffusion
CHECKPOINT_BYTES = 512 * 2**20  # of copies of recurrent states, if there are two of them at least


@dataclass(frozen=True)
class Sizes:
    """What the user chooses: see ``Limits``."""

    n_ctx: int
    n_batch: int
    n_parallel: int
    kv_type: str


def make_limits(graphs: Mapping[str, Graph], sizes: Sizes) -> Limits:
    """Size the cache: every layer can hold ``n_ctx`` positions; one with a window only what its window can reach.

    Where sequences have to be whole, a step has room for the longest.
    """
    if any(graph.needs_whole_sequences for graph in graphs.values()):
        sizes = replace(sizes, n_batch=max(sizes.n_batch, sizes.n_ctx))
    if not states_of_all(graphs):
        sizes = replace(sizes, n_parallel=max(sizes.n_parallel, MOST_TEXTS))
    whole = -(-sizes.n_ctx // BLOCK_SIZE)
    n_blocks = {}
    for window in attention_windows(states_of_all(graphs)):
        reach = -(-(window + sizes.n_batch) // BLOCK_SIZE) + 1
        n_blocks[window] = min(whole, reach * sizes.n_parallel) if window else whole
    if ENCODER in graphs:
        n_blocks[0] = 2 * whole  # a context of the encoder, and one of the decoder
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
    )


def _n_checkpoints(states: Sequence[State], n_seqs: int) -> int:
    """Copies of recurrent states: one for each sequence that runs ahead, and as many or more prefixes."""
    n_bytes = sum(4 * math.prod(state.shape) for state in states if isinstance(state, RecurrentState))
    if not n_bytes:
        return 0
    return max(2, min(2 * n_seqs + 14, CHECKPOINT_BYTES // n_bytes))


def states_of_all(graphs: Mapping[str, Graph]) -> list[State]:
    """Every distinct state of a model."""
    return list(dict.fromkeys(state for graph in graphs.values() for state in graph.states))


def attention_windows(states: Sequence[State]) -> list[int]:
    """The distinct attention windows of layers; layers of one window share block tables."""
    return sorted({state.window for state in states if isinstance(state, KVState)})
