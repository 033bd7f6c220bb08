"""Epsilons of norms within blocks that differ from those between blocks."""

from __future__ import annotations

from pumice.plugin import GraphBuilder, HParams, Tensor
from pumice.plugin.nn.blocks import rms_norm
from pumice.plugin.nn.decoder import Decoder


def inner_eps(hparams: HParams, eps: float) -> float:
    """Return the epsilon of norms within blocks: ``eps``, that of other norms, unless the file has one of its own."""
    return hparams.number("attention.inner_norm_rms_epsilon", eps)


class LatentNorms(Decoder):
    """A decoder whose norms of latents may have an epsilon of their own."""

    def norm(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        return rms_norm(g, x, name, inner_eps(self.hparams, self.eps) if name.endswith("_a_norm") else self.eps)
