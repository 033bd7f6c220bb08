"""Jamba (Lieber et al. 2024, arXiv:2403.19887): Mamba, attention in some layers, experts in some."""

from __future__ import annotations

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn import mixture_of_experts, read_experts, recurrent


class Jamba(recurrent.Hybrid):
    def mixer(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        return recurrent.mamba(g, x, blk, recurrent.read_state_space(self.hparams), self.norm)

    def rope(self, g: GraphBuilder, i: int) -> None:
        """Return None: the state spaces encode positions."""

    def feed_forward(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        if g.find_weight(f"{blk}ffn_gate_inp.weight"):
            return mixture_of_experts(g, x, blk, read_experts(self.hparams, i, normalize=False))
        return super().feed_forward(g, x, blk, i)
