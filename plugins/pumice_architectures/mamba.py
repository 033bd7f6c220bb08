"""Mamba, Falcon Mamba (Zuo et al. 2024, arXiv:2410.05355) and Mamba 2: a state space per layer, no attention."""

from __future__ import annotations

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn import Decoder, recurrent
from pumice_architectures.epsilons import inner_eps


class Mamba(Decoder):
    def layer(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        space = recurrent.read_state_space(self.hparams)
        norms = self.hparams.get_bool("ssm.dt_b_c_rms", False)  # Falcon Mamba's norms have no weights
        h = self.norm(g, x, blk + "attn_norm")
        return x + recurrent.mamba(g, h, blk, space, self.bare_norm if norms else None)

    def bare_norm(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        return g.rms_norm(x, None, inner_eps(self.hparams, self.eps))


class Mamba2(Decoder):
    def layer(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        space = recurrent.read_state_space(self.hparams, heads=True)
        return x + recurrent.mamba2(g, self.norm(g, x, blk + "attn_norm"), blk, space, self.eps)
