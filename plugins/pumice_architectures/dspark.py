"""DSpark: logits of a block as a Markov chain, each conditioned on the most probable previous token."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce

from pumice.plugin import GraphBuilder, HParams, Tensor, Weight
from pumice.plugin.nn.blocks import find_scale, project, width
from pumice.plugin.nn.places import at_place, of_sequence, places
from pumice_architectures.drafts import for_target

Rows = Callable[[Tensor], Tensor]
"""Picks rows of a tensor ``[t, ...]``: those of one place of each block, or all."""


def has_chain(g: GraphBuilder) -> bool:
    return any(g.find_weight(f"markov_{name}.weight") for name in ("w1", "w2"))


def first_of_chain(hparams: HParams) -> int:
    """Return the index in a block of the first drafted token."""
    return 0 if hparams.get_bool("sample_from_anchor", True) else 1


def chained(g: GraphBuilder, hparams: HParams, logits: Tensor, hidden: Tensor) -> Tensor:
    """Return the ``logits [t, n_vocab]`` of blocks plus each previous token's contribution.

    If the file has a matrix for it, the output ``confidence [n_outputs, 1]`` is the acceptance probability of each
    token, from ``hidden [t, n]`` and the previous token.
    """
    first = first_of_chain(hparams)
    block_size = hparams.positive("block_size")
    if block_size <= first:
        raise hparams.wrong("block_size", f"is {block_size}, which leaves no token to draft")
    n_vocab, rank = width(logits), int(g.weight("markov_w1.weight").shape[-1])
    drafted = g.find_weight("d2t")
    table = g.weight("markov_w1.weight", (n_vocab, rank))
    matrix = g.weight("markov_w2.weight", (int(drafted.shape[0]) if drafted else n_vocab, rank))
    matrix, scale = for_target(g, matrix), find_scale(g, "markov_w2")

    def added(before: Tensor, rows: Rows) -> Tensor:
        return project(g, before, matrix, None, scale)

    own = tokens_before(g, table, logits, range(first, block_size), added)
    if g.find_weight("conf_proj.weight"):
        weight = g.weight("conf_proj.weight", (1, width(hidden) + rank))
        sure = g.sigmoid(g.linear(g.concat(hidden, own), weight, g.find_weight("conf_proj.bias", (1,))))
        g.output("confidence", g.get_rows(sure, g.output_ids))
    return logits + added(own, lambda x: x)


def tokens_before(
    g: GraphBuilder, table: Weight, logits: Tensor, drafted: range, added: Callable[[Tensor, Rows], Tensor]
) -> Tensor:
    """Return the rows of ``table [n_vocab, rank]`` of each token's predecessor in its block: ``[t, rank]``.

    The predecessor of the first of the ``drafted`` places is the block's first token, of others the most probable token
    of the place before, by ``logits [t, n_vocab]`` and what ``added`` returns for the rows of a place and of its
    predecessors.
    """
    rank = int(table.shape[-1])
    before = at_place(g, g.embedding(table, g.tokens), 0)
    states = [before]
    for place in drafted[:-1]:
        rows = partial(at_place, g, place=place)
        likeliest = g.top_k(rows(logits) + added(before, rows), 1)
        before = g.embedding(table, likeliest).reshape(before.shape[0], rank)
        states.append(before)
    shape = logits.shape[0], len(states), rank
    whole = of_sequence(g, reduce(g.concat, states)).reshape(*shape)
    return g.expert_sum(whole, places(g, drafted.start, drafted.stop))
