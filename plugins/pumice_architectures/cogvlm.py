"""The text model of CogVLM (Wang et al. 2023, arXiv:2311.03079)."""

from __future__ import annotations

from pumice.plugin import GraphBuilder, HParams, MediaRules
from pumice.plugin.nn import optional
from pumice.plugin.nn.decoder import Decoder
from pumice.plugin.nn.rope import Rope

EXPERTS = ("attn_qkv", "attn_output", "gate", "up", "down")  # matrices that images have of their own


class CogVLM(Decoder):
    """RoPE is unscaled, whatever the file says. All patches of an image have one position."""

    scaled = optional.ATTENTION_OUTPUT

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        experts = {
            f"blk.{i}.{name if name.startswith('attn') else f'ffn_{name}'}.weight": f"blk.{i}.vis_{name}.weight"
            for i in range(self.n_layer)
            for name in EXPERTS
        }
        self.media_rules = MediaRules((0,) * (self.heads(0).k_dim // 2), experts=experts)

    def rope(self, g: GraphBuilder, i: int) -> Rope:
        return Rope(n_rot=self.heads(i).k_dim, neox=True, freq_base=10000.0)
