"""Base class of draft models: they read the inputs of the target's layers, and may share its embeddings and head."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import GraphBuilder, ModelError, Tensor, Weight
from pumice.plugin.nn.decoder import Decoder
from pumice.plugin.unstable import FEATURES, MAIN

IMPOSSIBLE = -2e30  # logit of a token that the draft does not have


class DraftDecoder(Decoder):
    """``features`` reads inputs of the target's layers; the main graph returns logits of the target's tokens."""

    heads_of_logits: tuple[str, ...] = ("output.weight",)

    def graphs(self) -> Mapping[str, Callable[[GraphBuilder], Tensor | None]]:
        return {FEATURES: self.features, MAIN: self.build}

    def features(self, g: GraphBuilder) -> None:
        """Read ``features [t, n_features]``, inputs of the target's layers; output ``hidden [t, n_embd]``."""
        raise NotImplementedError

    def token(self, g: GraphBuilder) -> Tensor:
        """Return the tokens' embeddings ``[t, n_embd]`` from the draft's own table or the target's."""
        table = table_of(g)
        if table.shape[1] != self.n_embd:
            raise ModelError(f"the target's {table} does not match the draft's width {self.n_embd}")
        return g.embedding(table, g.tokens)

    def logits(self, g: GraphBuilder, x: Tensor) -> Tensor:
        """Return logits of the target's tokens; ``d2t`` lists those in the draft's vocabulary."""
        weight = self.head_weight(g)
        rows, table = tokens_of_draft(g, weight), table_of(g)
        if rows is None and weight.shape[0] != table.shape[0]:
            raise ModelError(f"{weight} has {weight.shape[0]} rows, expected {table.shape[0]} as in {table}")
        y = self.finished(g, g.linear(x, for_target(g, weight)))
        if rows is None:
            return y
        missing = np.full(int(y.shape[1]), IMPOSSIBLE)
        missing[rows] = 0
        return y + g.constant("missing", missing)

    def finished(self, g: GraphBuilder, logits: Tensor) -> Tensor:
        """Post-process the logits of the tokens in the draft's vocabulary."""
        return logits

    def head_weight(self, g: GraphBuilder) -> Weight:
        """Return the head matrix, the draft's own or the target's."""
        own = (g.find_weight(name) for name in self.heads_of_logits)
        weight_of_draft = next((weight for weight in own if weight), None)
        return weight_of_draft or g.target.find_weight("output.weight") or g.target.weight("token_embd.weight")


def table_of(g: GraphBuilder) -> Weight:
    """Return the embedding table of the target's tokens, which the draft may also have."""
    return g.find_weight("token_embd.weight") or g.target.weight("token_embd.weight")


def for_target(g: GraphBuilder, weight: Weight) -> Weight:
    """Spread a matrix with a row per token of the draft to a row per token of the target; other rows are 0."""
    rows = tokens_of_draft(g, weight)
    if rows is None:
        return weight
    shape = (int(table_of(g).shape[0]), int(weight.shape[1]))

    def spread(values: NDArray[np.float32]) -> NDArray[np.float32]:
        whole = np.zeros(shape, np.float32)
        whole[rows] = values
        return whole

    return g.derived(f"{weight.name}, for the target", shape, spread, weight)


def tokens_of_draft(g: GraphBuilder, weight: Weight) -> NDArray[np.int64] | None:
    """Return the target's token for each row of ``weight`` as integers; None if the vocabularies are equal."""
    chosen = g.find_weight("d2t")
    if chosen is None:
        return None
    rows = chosen.dequantize().astype(np.int64)
    if rows.shape != weight.shape[:1] or rows.min(initial=0) < 0 or rows.max(initial=0) >= int(table_of(g).shape[0]):
        raise ModelError(f"tensor d2t must list {weight.shape[0]} tokens of the target, one per draft token")
    return rows
