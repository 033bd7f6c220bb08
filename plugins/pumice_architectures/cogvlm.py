"""CogVLM 2, its text part (Hong et al. 2024, arXiv:2408.16500)."""

from __future__ import annotations

from pumice.plugin import GraphBuilder
from pumice.plugin.nn import optional
from pumice.plugin.nn.decoder import Decoder
from pumice.plugin.nn.rope import Rope


class CogVLM(Decoder):
    """Rotary positions are plain, whatever the file says. Images have matrices of their own, which text never needs."""

    scaled = optional.ATTENTION_OUTPUT

    def rope(self, g: GraphBuilder, i: int) -> Rope:
        return Rope(n_rot=self.heads(i).k_dim, neox=True, freq_base=10000.0)
