"""Blocks of a Q-Former (Li et al. 2023, arXiv:2301.12597): queries attend to each other, then to what they look at."""

from __future__ import annotations

from collections.abc import Callable

from pumice.plugin import N_TOKENS, GraphBuilder, Tensor
from pumice.plugin.nn import blocks

EPSILON = 1e-12
Attend = Callable[[Tensor, Tensor, Tensor], Tensor]  # from queries, keys and values [t, heads, d] to results


def query_block(
    g: GraphBuilder, y: Tensor, x: Tensor, blk: str, n_head: int, among_queries: Attend, to_rows: Attend
) -> Tensor:
    """Return queries ``y [t, n]`` behind a block, in which they look at the rows ``x``; norms follow additions.

    ``blk``: start of the names of its tensors. Which rows attend to which is up to the last two arguments.
    """
    y = query_norm(g, y + _looked(g, y, y, f"{blk}self_attn_", n_head, among_queries), f"{blk}self_attn_norm")
    y = query_norm(g, y + _looked(g, y, x, f"{blk}cross_attn_", n_head, to_rows), f"{blk}cross_attn_norm")
    h = g.gelu_erf(blocks.linear(g, y, f"{blk}ffn_up"))
    return query_norm(g, y + blocks.linear(g, h, f"{blk}ffn_down", blocks.width(y)), f"{blk}ffn_norm")


def query_norm(g: GraphBuilder, x: Tensor, name: str) -> Tensor:
    """Return normalized queries."""
    return blocks.layer_norm(g, x, name, EPSILON)


def _looked(g: GraphBuilder, y: Tensor, x: Tensor, name: str, n_head: int, attend: Attend) -> Tensor:
    n = blocks.width(y)
    q, k, v = (
        blocks.linear(g, rows, f"{name}{part}", n).reshape(N_TOKENS, n_head, n // n_head)
        for rows, part in ((y, "q"), (x, "k"), (x, "v"))
    )
    return blocks.linear(g, attend(q, k, v).reshape(N_TOKENS, n), f"{name}out", n)
