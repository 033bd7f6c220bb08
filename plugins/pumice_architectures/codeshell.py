"""CodeShell (Xie et al. 2024, arXiv:2403.15747)."""

from __future__ import annotations

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn.blocks import embedding
from pumice_architectures.starcoder2 import StarCoder2


class CodeShell(StarCoder2):
    """StarCoder 2, where the output matrix may double as the embedding table."""

    def embed(self, g: GraphBuilder) -> Tensor:
        return embedding(g, self.n_embd, "token_embd" if g.find_weight("token_embd.weight") else "output")
