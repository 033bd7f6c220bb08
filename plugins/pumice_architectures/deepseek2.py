"""DeepSeek V2 (2024, arXiv:2405.04434), V3, R1 and others built like them: multi-head latent attention (MLA), MoE."""

from __future__ import annotations

import math

from pumice.plugin import GraphBuilder, HParams, Tensor
from pumice.plugin.nn.blocks import gated_feed_forward, linear, temperature, width
from pumice.plugin.nn.decoder import Decoder
from pumice.plugin.nn.experts import mixture_of_experts, read_experts, read_gate
from pumice.plugin.nn.rope import Rope, read_rope


class DeepSeek2(Decoder):
    """Multi-head latent attention; dense layers first, then experts beside shared ones."""

    neox = False

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.kv_lora_rank = hparams.positive("attention.kv_lora_rank")
        self.is_absorbed = hparams.get_int("attention.key_length_mla", 0) > 0
        self.n_dense = hparams.get_int("leading_dense_block_count", 0)
        self.n_shared = hparams.get_int("expert_shared_count")
        self.gate = read_gate(hparams, "softmax")
        # the file holds a tenth of the paper's mscale_all_dim
        self.mscale_all_dim = hparams.number("rope.scaling.yarn_log_multiplier", 0.0) / 0.1

    def layer(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        x = x + self.latent_attention(g, self.norm(g, x, blk + "attn_norm"), blk, i)
        h = self.norm(g, x, blk + "ffn_norm")
        if i < self.n_dense:
            return x + gated_feed_forward(g, h, blk, self.n_ff(i), g.silu)
        experts = read_experts(self.hparams, i, gate=self.gate, normalize=None)
        shared = gated_feed_forward(g, h, blk, experts.n_ff * self.n_shared, g.silu, suffix="_shexp")
        return x + (mixture_of_experts(g, h, blk, experts) + shared)

    def latent_attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        """Attention over one latent vector a token (section 2.1 of the paper); only it and ``k_rope`` need caching."""
        n_head, k_dim, v_dim = self.head_sizes(i)
        rope = self.rope(g, i)
        nope = k_dim - rope.n_rot  # values of a query or key without position
        if nope < 1:
            raise self.hparams.wrong("rope.dimension_count", f"is {rope.n_rot}, it must be below {k_dim}")
        q = self.queries(g, x, blk, n_head * k_dim).reshape(x.shape[0], n_head, k_dim)
        q_nope, q_rope = g.slice(q, 0, nope), rope(g, g.slice(q, nope, k_dim))

        compressed = linear(g, x, blk + "attn_kv_a_mqa", self.kv_lora_rank + rope.n_rot)
        latent = self.norm(g, g.slice(compressed, 0, self.kv_lora_rank), blk + "attn_kv_a_norm")
        k_rope = g.slice(compressed, self.kv_lora_rank, width(compressed))
        k_rope = rope(g, k_rope.reshape(x.shape[0], 1, rope.n_rot))

        attend = self.attend_to_latents if self.is_absorbed else self.attend_to_heads
        y = attend(g, blk, (q_nope, q_rope), latent, k_rope, v_dim, self.attention_scale(rope, k_dim))
        return linear(g, y.reshape(x.shape[0], n_head * v_dim), blk + "attn_output", self.n_embd)

    def attend_to_latents(
        self,
        g: GraphBuilder,
        blk: str,
        q: tuple[Tensor, Tensor],
        latent: Tensor,
        k_rope: Tensor,
        v_dim: int,
        scale: float,
    ) -> Tensor:
        """What would unpack every key multiplies the query instead, and values are unpacked after attention."""
        queries = self.sharpen(g, g.concat(head_by_head(g, q[0], f"{blk}attn_k_b.weight", self.kv_lora_rank), q[1]))
        keys = g.concat(latent.reshape(latent.shape[0], 1, self.kv_lora_rank), k_rope)
        y = g.attention(queries, keys, None, scale=scale, v_dim=self.kv_lora_rank)
        return head_by_head(g, y, f"{blk}attn_v_b.weight", v_dim)

    def attend_to_heads(
        self,
        g: GraphBuilder,
        blk: str,
        q: tuple[Tensor, Tensor],
        latent: Tensor,
        k_rope: Tensor,
        v_dim: int,
        scale: float,
    ) -> Tensor:
        """Older files have one matrix that unpacks keys and values of every head."""
        n_head, nope = int(q[0].shape[1]), width(q[0])
        unpacked = linear(g, latent, blk + "attn_kv_b", n_head * (nope + v_dim))
        unpacked = unpacked.reshape(latent.shape[0], n_head, nope + v_dim)
        keys = g.concat(g.slice(unpacked, 0, nope), k_rope)
        values = g.slice(unpacked, nope, nope + v_dim)
        return g.attention(self.sharpen(g, g.concat(*q)), keys, values, scale=scale)

    def queries(self, g: GraphBuilder, x: Tensor, blk: str, n_out: int) -> Tensor:
        """Through a low-rank bottleneck, except in the small models."""
        if g.find_weight(f"{blk}attn_q.weight"):
            return linear(g, x, blk + "attn_q", n_out)
        rank = self.hparams.positive("attention.q_lora_rank")
        return linear(
            g, self.norm(g, linear(g, x, blk + "attn_q_a", rank), blk + "attn_q_a_norm"), blk + "attn_q_b", n_out
        )

    def head_sizes(self, i: int) -> tuple[int, int, int]:
        """Heads, and the values of a key and of a value after unpacking."""
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
            mscale=self.mscale_all_dim or 1.0,
            mscale_all_dim=self.mscale_all_dim,
        )

    def attention_scale(self, rope: Rope, k_dim: int) -> float:
        """YaRN's magnitude belongs to whole queries and keys, but ``rope`` scales only the part it turns."""
        stretch = -math.log(rope.freq_scale)
        mscale = rope.attn_factor * (1 + 0.1 * stretch) * (1 + 0.1 * self.mscale_all_dim * stretch)
        return float(mscale**2 * k_dim**-0.5)

    def sharpen(self, g: GraphBuilder, q: Tensor) -> Tensor:
        beta = self.hparams.number("attention.temperature_scale", 0.0)
        factors = temperature(g, beta, self.hparams.get_int("attention.temperature_length", 0)) if beta else None
        return q if factors is None else q * factors


def head_by_head(g: GraphBuilder, x: Tensor, name: str, n_out: int) -> Tensor:
    """``x [t, n_head, k]`` times a matrix for each head: ``[t, n_head, n_out]``."""
    n_head = int(x.shape[1])
    if n_head == 1 and len(g.weight(name).shape) == 2:  # many writers leave out a last dimension of 1
        return g.linear(x, g.weight(name, (n_out, width(x))))
    return g.batched_linear(x, g.weight(name, (n_head, n_out, width(x))))
