"""GPT-NeoX (Black et al. 2022, arXiv:2204.06745) and Pythia."""

from __future__ import annotations

from pumice.plugin import GraphBuilder, HParams, Tensor
from pumice.plugin.nn.blocks import feed_forward
from pumice.plugin.nn.decoder import LayerNormDecoder


class GPTNeoX(LayerNormDecoder):
    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.parallel = hparams.get_bool("use_parallel_residual")

    def layer(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        attended = x + self.attention(g, self.norm(g, x, blk + "attn_norm"), blk, i)
        h = self.norm(g, x if self.parallel else attended, blk + "ffn_norm")
        return attended + feed_forward(g, h, blk, self.n_ff(i), g.gelu)
