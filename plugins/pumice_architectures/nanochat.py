"""nanochat (Karpathy 2025)."""

from __future__ import annotations

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn.blocks import feed_forward, softcap
from pumice.plugin.nn.decoder import Decoder


class NanoChat(Decoder):
    """Norms without weights, also of the embeddings and of rotated queries and keys; squared ReLU, capped logits."""

    qk_norm = "after rope"

    def norm(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        return g.rms_norm(x, None, self.eps)

    def embed(self, g: GraphBuilder) -> Tensor:
        return self.norm(g, super().embed(g), "token_embd_norm")

    def feed_forward(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        return feed_forward(g, x, blk, self.n_ff(i), g.relu_squared)

    def head(self, g: GraphBuilder, x: Tensor) -> Tensor:
        return softcap(g, super().head(g, x), self.hparams.number("final_logit_softcapping", 0.0))
