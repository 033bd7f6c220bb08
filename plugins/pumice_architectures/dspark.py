"""DSpark: logits of a block as a Markov chain, each conditioned on the most probable previous token."""

from __future__ import annotations

from functools import reduce

from pumice.plugin import GraphBuilder, HParams, Tensor
from pumice.plugin.nn.blocks import find_scale, project, width
from pumice.plugin.nn.places import at_place, of_sequence, places
from pumice_architectures.drafts import for_target


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

    before = at_place(g, g.embedding(table, g.tokens), 0)
    states = [before]
    for place in range(first, block_size - 1):
        likeliest = g.top_k(at_place(g, logits, place) + project(g, before, matrix, None, scale), 1)
        before = g.embedding(table, likeliest).reshape(before.shape[0], rank)
        states.append(before)
    shape = logits.shape[0], len(states), rank
    own = g.expert_sum(of_sequence(g, reduce(g.concat, states)).reshape(*shape), places(g, first, block_size))
    if g.find_weight("conf_proj.weight"):
        weight = g.weight("conf_proj.weight", (1, width(hidden) + rank))
        sure = g.sigmoid(g.linear(g.concat(hidden, own), weight, g.find_weight("conf_proj.bias", (1,))))
        g.output("confidence", g.get_rows(sure, g.output_ids))
    return logits + project(g, own, matrix, None, scale)
