"""Granite 4 H (IBM 2025): Granite 3 with Mamba 2 in most layers."""

from __future__ import annotations

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn import recurrent
from pumice_architectures.granite import Granite


class GraniteHybrid(recurrent.Hybrid, Granite):
    def logit_divisor(self) -> float:
        return self.hparams.number("logit_scale", 0.0) or 1.0

    def mixer(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        return recurrent.mamba2(g, x, blk, recurrent.read_state_space(self.hparams, heads=True), self.eps)
