"""DeepSeek V2 (2024, arXiv:2405.04434), V3, R1 and relatives: multi-head latent attention (MLA), MoE."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from pumice.plugin import GraphBuilder, HParams, Tensor
from pumice.plugin.nn import optional
from pumice.plugin.nn.blocks import linear, temperature
from pumice.plugin.nn.expert_decoder import ExpertDecoder
from pumice.plugin.nn.latent import latent_attention
from pumice.plugin.nn.rope import Rope, read_rope
from pumice_architectures.epsilons import LatentNorms


class DeepSeek2(LatentNorms, ExpertDecoder):
    """Multi-head latent attention; dense layers first, then experts and shared ones."""

    drafts = "after norm"
    scaled = optional.ATTENTION_OUTPUT | {"eh_proj"}
    neox = False
    gate_of_file = True
    normalize = None
    shared = "expert_shared_count"
    #: Whether YaRN's mscale equals the file's mscale_all_dim; otherwise it is 1.
    mscale_is_for_all: ClassVar[bool] = True

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.kv_lora_rank = hparams.positive("attention.kv_lora_rank")
        self.is_absorbed = hparams.get_int("attention.key_length_mla", 0) > 0
        # The file stores a tenth of the paper's mscale_all_dim.
        self.mscale_all_dim = hparams.number("rope.scaling.yarn_log_multiplier", 0.0) / 0.1

    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        n_head, k_dim, v_dim = self.head_sizes(i)
        rope = self.rope(g, i)
        q = self.sharpen(g, self.queries(g, x, blk, n_head * k_dim).reshape(x.shape[0], n_head, k_dim))
        scale = self.attention_scale(rope, k_dim)
        y = latent_attention(g, x, q, blk, self.kv_lora_rank, v_dim, rope, norm=self.norm, scale=scale)
        return linear(g, y.reshape(x.shape[0], n_head * v_dim), blk + "attn_output", self.n_embd)

    def queries(self, g: GraphBuilder, x: Tensor, blk: str, n_out: int) -> Tensor:
        """Project through a low-rank bottleneck, except in the small models."""
        if g.find_weight(f"{blk}attn_q.weight"):
            return linear(g, x, blk + "attn_q", n_out)
        rank = self.hparams.positive("attention.q_lora_rank")
        compressed = self.norm(g, linear(g, x, blk + "attn_q_a", rank), blk + "attn_q_a_norm")
        return linear(g, compressed, blk + "attn_q_b", n_out)

    def head_sizes(self, i: int) -> tuple[int, int, int]:
        """Return the number of heads, and the widths of an expanded key and value."""
        n_head = self.hparams.count("attention.head_count", i)
        suffix = "_mla" if self.is_absorbed else ""
        sizes = [self.hparams.positive(f"attention.{kind}_length{suffix}") for kind in ("key", "value")]
        return n_head, sizes[0], sizes[1]

    def rope(self, g: GraphBuilder, i: int) -> Rope:
        return read_rope(
            self.hparams,
            g,
            self.head_sizes(i)[1],
            neox=self.neox,
            mscale=(self.mscale_all_dim if self.mscale_is_for_all else 0.0) or 1.0,
            mscale_all_dim=self.mscale_all_dim,
        )

    def attention_scale(self, rope: Rope, k_dim: int) -> float:
        """Return the scale. YaRN's magnitude applies to whole heads, but ``rope`` scales only the part it rotates."""
        stretch = -math.log(rope.freq_scale) if rope.ext_factor else 0.0
        mscale = rope.attn_factor * (1 + 0.1 * stretch) * (1 + 0.1 * self.mscale_all_dim * stretch)
        return float(mscale**2 * k_dim**-0.5)

    def sharpen(self, g: GraphBuilder, q: Tensor) -> Tensor:
        beta = self.hparams.number("attention.temperature_scale", 0.0)
        factors = temperature(g, beta, self.hparams.get_int("attention.temperature_length", 0)) if beta else None
        return q if factors is None else q * factors


class Mistral4(DeepSeek2):
    """Mistral Small 4 (2026)."""

    mscale_is_for_all = False


class AXK1(DeepSeek2):
    """A.X K1 (SK Telecom 2026): a norm follows the experts."""

    drafts = ""

    def feed_forward(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        y = super().feed_forward(g, x, blk, i)
        return y if self.is_dense(i) else self.norm(g, y, f"{blk}post_ffw_norm")
