"""Seed-OSS (ByteDance 2025)."""

from pumice.plugin.nn.decoder import Decoder


class SeedOss(Decoder):
    norms_before = ("attn_norm", "post_attention_norm")
