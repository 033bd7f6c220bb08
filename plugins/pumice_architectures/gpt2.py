"""GPT-2 (Radford et al. 2019)."""

from __future__ import annotations

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn.blocks import learned_positions
from pumice.plugin.nn.decoder import LayerNormDecoder


class GPT2(LayerNormDecoder):
    """Learned positions; the feed-forward block has no gate."""

    rope_layers = "none"
    ffn, activation = "plain", "gelu"

    def embed(self, g: GraphBuilder) -> Tensor:
        return super().embed(g) + learned_positions(g, self.n_ctx_train, self.n_embd)
