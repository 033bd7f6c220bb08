"""The text model of CogVLM (Wang et al. 2023, arXiv:2311.03079)."""

from __future__ import annotations

from pumice.plugin import GraphBuilder, HParams
from pumice.plugin.nn import optional
from pumice.plugin.nn.decoder import Decoder
from pumice.plugin.nn.rope import Rope, frequency_base
from pumice.plugin.unstable import MediaRules

MOST_PAIRS = 4096  # of a head's values; published models have 64
EXPERTS = {  # matrices that images have of their own
    "attn_qkv": "vis_attn_qkv",
    "attn_output": "vis_attn_output",
    **{f"ffn_{part}": f"vis_{part}" for part in ("gate", "up", "down")},
}


class CogVLM(Decoder):
    """RoPE is unscaled, whatever the file says. All patches of an image have one position.

    CogVLM 2, whose heads share keys, has another base of RoPE, that of the file.
    """

    scaled = optional.ATTENTION_OUTPUT

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        n_pairs = self.heads(0).k_dim // 2
        if n_pairs > MOST_PAIRS:
            raise hparams.wrong("attention.key_length", f"is {2 * n_pairs}, expected at most {2 * MOST_PAIRS}")
        self.media_rules = MediaRules((0,) * n_pairs, experts=EXPERTS)

    def rope(self, g: GraphBuilder, i: int) -> Rope:
        heads = self.heads(i)
        base = 10000.0 if heads.n_head_kv == heads.n_head else frequency_base(self.hparams)
        return Rope(n_rot=heads.k_dim, neox=True, freq_base=base)
