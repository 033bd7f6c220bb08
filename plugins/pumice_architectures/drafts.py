"""What drafts for other models have in common: they see what its layers take, and may share its two ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pumice.plugin import FEATURES, MAIN, GraphBuilder, ModelError, Tensor, Weight
from pumice.plugin.nn.decoder import Decoder

IMPOSSIBLE = -2e30  # logit of a token that the draft does not have


class Draft(Decoder):
    """``features`` reads what went into layers of the target; the main graph gives logits of its tokens."""

    heads_of_logits: tuple[str, ...] = ("output.weight",)

    def graphs(self) -> Mapping[str, Callable[[GraphBuilder], Tensor | None]]:
        return {FEATURES: self.features, MAIN: self.build}

    def features(self, g: GraphBuilder) -> None:
        """``features [t, n_features]``: what went into the target's layers; the output ``hidden [t, n_embd]``."""
        raise NotImplementedError

    def token(self, g: GraphBuilder) -> Tensor:
        """The embeddings of the tokens ``[t, n_embd]``, by the draft's own table or the target's."""
        table = table_of(g)
        if table.shape[1] != self.n_embd:
            raise ModelError(f"the target's {table} does not fit the draft, which is {self.n_embd} wide")
        return g.embedding(table, g.tokens)

    def logits(self, g: GraphBuilder, x: Tensor) -> Tensor:
        """Of the target's tokens, of which ``d2t`` lists those that the draft has."""
        weight = self.head_weight(g)
        rows, table = tokens_of_draft(g, weight), table_of(g)
        if rows is None and weight.shape[0] != table.shape[0]:
            raise ModelError(f"{weight} gives {weight.shape[0]} logits, for the {table.shape[0]} tokens of {table}")
        y = self.finished(g, g.linear(x, for_target(g, weight)))
        if rows is None:
            return y
        missing = np.full(int(y.shape[1]), IMPOSSIBLE)
        missing[rows] = 0
        return y + g.constant("missing", missing)

    def finished(self, g: GraphBuilder, logits: Tensor) -> Tensor:
        """What becomes of the logits of the tokens that the draft has."""
        return logits

    def head_weight(self, g: GraphBuilder) -> Weight:
        """The matrix that makes logits, the draft's own or the target's."""
        own = (g.find_weight(name) for name in self.heads_of_logits)
        found = next((weight for weight in own if weight), None)
        return found or g.target.find_weight("output.weight") or g.target.weight("token_embd.weight")


def table_of(g: GraphBuilder) -> Weight:
    """The embeddings of the target's tokens, which the draft may have too."""
    return g.find_weight("token_embd.weight") or g.target.weight("token_embd.weight")


def for_target(g: GraphBuilder, weight: Weight) -> Weight:
    """A matrix with a row for each token of the target, of one with a row for each of the draft; others are 0."""
    rows = tokens_of_draft(g, weight)
    if rows is None:
        return weight
    shape = (int(table_of(g).shape[0]), int(weight.shape[1]))

    def spread(values: Any) -> Any:
        whole = np.zeros(shape, np.float32)
        whole[rows] = values
        return whole

    return g.derived(f"{weight.name}, for the target", shape, spread, weight)


def tokens_of_draft(g: GraphBuilder, weight: Weight) -> Any:
    """The target's token for each row of ``weight``, an array of integers; None where the draft has all."""
    chosen = g.find_weight("d2t")
    if chosen is None:
        return None
    rows = chosen.dequantize().astype(np.int64)
    if rows.shape != weight.shape[:1] or rows.min(initial=0) < 0 or rows.max(initial=0) >= int(table_of(g).shape[0]):
        raise ModelError(f"tensor d2t must have a token of the target for each of the {weight.shape[0]} of the draft")
    return rows
