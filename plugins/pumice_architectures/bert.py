"""BERT (Devlin et al. 2018, arXiv:1810.04805) and encoders built like it: Nomic Embed, Jina Embeddings 2 and 3."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn import optional
from pumice.plugin.nn.blocks import feed_forward, fused_feed_forward, gated_feed_forward, learned_positions
from pumice.plugin.nn.encoder import LayerNormEncoder
from pumice.plugin.nn.experts import choose_experts, expert_linear, read_experts


class PostNormEncoder(LayerNormEncoder):
    """Norms of the embeddings and of each block's output plus input; none at the end.

    The embedding of the first token type, "sentence A", is added to every token.
    """

    final_norm = ""
    ffn, activation = "plain", "gelu"

    def embed(self, g: GraphBuilder) -> Tensor:
        x = super().embed(g)
        types = g.find_weight("token_types.weight")
        if types is not None:
            x = x + types.rows(0, 1)
        return self.norm(g, self.add_positions(g, x), "token_embd_norm")

    def add_positions(self, g: GraphBuilder, x: Tensor) -> Tensor:
        return x

    def layer(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        h = self.after_attention(g, x, self.norm(g, self.attention(g, x, blk, i) + x, blk + "attn_output_norm"), blk)
        return self.norm(g, self.feed_forward(g, h, blk, i) + h, blk + "layer_output_norm")

    def after_attention(self, g: GraphBuilder, x: Tensor, h: Tensor, blk: str) -> Tensor:
        """Return the input of the feed-forward block.

        Args:
            x: input of the layer.
            h: normalized sum of ``x`` and its attention.
        """
        return h


class Bert(PostNormEncoder):
    """BERT: learned positions."""

    rope_layers = "none"

    def add_positions(self, g: GraphBuilder, x: Tensor) -> Tensor:
        return x + learned_positions(g, self.n_ctx_train, self.n_embd)


class NomicBert(PostNormEncoder):
    """Nomic Embed 1 (Nussbaum et al. 2024, arXiv:2402.01613): gated feed-forward blocks without biases."""

    unused = optional.FEED_FORWARD_BIASES

    def feed_forward(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        n_ff = self.n_ff(i)
        gate, up = (g.linear(x, g.weight(f"{blk}ffn_{name}.weight", (n_ff, self.n_embd))) for name in ("gate", "up"))
        return g.linear(g.silu(gate) * up, g.weight(f"{blk}ffn_down.weight", (self.n_embd, n_ff)))


class NomicBertMoE(PostNormEncoder):
    """Nomic Embed 2 (Nussbaum and Duderstadt 2025, arXiv:2502.07972): ungated experts in every other layer."""

    def feed_forward(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        period = self.hparams.get_int("moe_every_n_layers", 0)
        if period <= 0 or i % period != 1:
            return super().feed_forward(g, x, blk, i)
        experts = read_experts(self.hparams, i, normalize=False, width="feed_forward_length")
        ids, weights = choose_experts(g, x, blk, replace(experts, scale=1.0))
        h = g.gelu(expert_linear(g, x, f"{blk}ffn_up_exps", ids, experts.n_expert, experts.n_ff))
        return g.expert_sum(expert_linear(g, h, f"{blk}ffn_down_exps", ids, experts.n_expert, self.n_embd), weights)


class JinaBertV2(PostNormEncoder):
    """Jina Embeddings 2 (Günther et al. 2023, arXiv:2310.19923): ALiBi; some sizes add a layer's input once more."""

    qk_norm_is_wide = True
    max_bias = 8.0  # largest bias of ALiBi
    rope_layers = "none"

    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        self.qk_norm = "before rope" if g.find_weight(f"{blk}attn_q_norm.weight") else ""
        return super().attention(g, x, blk, i, **options)

    def after_attention(self, g: GraphBuilder, x: Tensor, h: Tensor, blk: str) -> Tensor:
        return self.norm(g, h + x, f"{blk}attn_norm_2") if g.find_weight(f"{blk}attn_norm_2.weight") else h

    def feed_forward(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        n_ff = self.n_ff(i)
        if g.find_weight(f"{blk}ffn_gate.weight"):
            return gated_feed_forward(g, x, blk, n_ff, g.gelu)
        if g.weight(f"{blk}ffn_up.weight").shape[0] == 2 * n_ff:
            return fused_feed_forward(g, x, blk, n_ff, g.gelu)
        return feed_forward(g, x, blk, n_ff, g.gelu)


class JinaBertV3(PostNormEncoder):
    """Jina Embeddings 3 (Sturua et al. 2024, arXiv:2409.10173): rotary positions."""
