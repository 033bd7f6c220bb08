"""The text model of CogVLM 2 (Hong et al. 2024, arXiv:2408.16500)."""

from __future__ import annotations

from pumice.plugin import GraphBuilder
from pumice.plugin.nn import optional
from pumice.plugin.nn.decoder import Decoder
from pumice.plugin.nn.rope import Rope


class CogVLM(Decoder):
    """RoPE is unscaled, whatever the file says. The matrices for image tokens are not needed."""

    scaled = optional.ATTENTION_OUTPUT

    def rope(self, g: GraphBuilder, i: int) -> Rope:
        return Rope(n_rot=self.heads(i).k_dim, neox=True, freq_base=10000.0)
