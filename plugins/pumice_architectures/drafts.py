"""What drafts for other models have in common: they see what its layers take, and may share its two ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pumice.plugin import FEATURES, MAIN, GraphBuilder, ModelError, Tensor, Weight
from pumice.plugin.nn.decoder import Decoder

IMPOSSIBLE = -1e30  # logit of a token that the draft does not have


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
        table = g.find_weight("token_embd.weight") or g.target.weight("token_embd.weight")
        if table.shape[1] != self.n_embd:
            raise ModelError(f"the target's {table} does not fit the draft, which is {self.n_embd} wide")
        return g.embedding(table, g.tokens)

    def logits(self, g: GraphBuilder, x: Tensor) -> Tensor:
        """Of the target's tokens, of which ``d2t`` lists those that the draft has."""
        weight, chosen = self.head_weight(g), g.find_weight("d2t")
        if chosen is None:
            return g.linear(x, weight)
        table = g.find_weight("token_embd.weight") or g.target.weight("token_embd.weight")
        shape = (int(table.shape[0]), self.n_embd)
        rows = chosen.dequantize().astype(np.int64)
        if rows.shape != weight.shape[:1] or rows.min(initial=0) < 0 or rows.max(initial=0) >= shape[0]:
            raise ModelError(
                f"tensor d2t must have a token of the target for each of the {weight.shape[0]} of the draft"
            )

        def spread(values: Any) -> Any:
            whole = np.zeros(shape, np.float32)
            whole[rows] = values
            return whole

        missing = np.full(shape[0], IMPOSSIBLE)
        missing[rows] = 0
        return g.linear(x, g.derived("output, of the target", shape, spread, weight), g.constant("missing", missing))

    def head_weight(self, g: GraphBuilder) -> Weight:
        """The matrix that makes logits, the draft's own or the target's."""
        own = (g.find_weight(name) for name in self.heads_of_logits)
        found = next((weight for weight in own if weight), None)
        return found or g.target.find_weight("output.weight") or g.target.weight("token_embd.weight")
