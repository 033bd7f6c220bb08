"""nanochat (Karpathy 2025)."""

from __future__ import annotations

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn.decoder import Decoder


class NanoChat(Decoder):
    """Norms without weights, also of the embeddings and of rotated queries and keys; squared ReLU, capped logits."""

    qk_norm = "after rope"
    embedding_norm = "token_embd_norm"
    logit_softcap = 0.0
    ffn, activation = "plain", "relu_squared"

    def norm(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        return g.rms_norm(x, None, self.eps)
