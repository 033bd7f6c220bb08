"""Falcon-H1 (Zuo et al. 2025, arXiv:2507.22448): attention and Mamba 2 in parallel in every layer."""

from __future__ import annotations

from typing import Any

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn import Decoder, optional, recurrent


class FalconH1(Decoder):
    unused = optional.ROPE_FACTORS | {"attn_output.bias"}

    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        scale = self.hparams.number("attention.scale", 0.0)
        space = recurrent.read_state_space(self.hparams, heads=True)
        y = recurrent.mamba2(g, x, blk, space, self.eps, may_lack_norm=True)
        return super().attention(g, x, blk, i, scale=scale) + y

    def norm(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        """Look up the norm; one norm's name has no suffix in these files."""
        ending = "" if name.endswith("ffn_norm") else ".weight"
        return g.rms_norm(x, g.weight(name + ending, (self.n_embd,)), self.eps)
