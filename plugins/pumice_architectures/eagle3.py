"""EAGLE-3 (Li et al. 2025, arXiv:2503.01840): one layer that drafts from the inputs of a target's layers."""

from __future__ import annotations

from typing import Any

from pumice.plugin import N_TOKENS, GraphBuilder, HParams, Tensor
from pumice.plugin.nn.blocks import linear
from pumice_architectures.drafts import DraftDecoder

N_FEATURES = 3  # layers of the target whose inputs it reads


class Eagle3(DraftDecoder):
    """``features`` projects the target's hidden states; the main graph returns logits and the next hidden state."""

    neox = False

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        if self.n_layer != 1:
            raise hparams.wrong("block_count", f"is {self.n_layer}, expected 1 for a draft")
        self.n_target = hparams.positive("target_hidden_size")
        self.target_layers = hparams.integers("target_layers")
        if len(self.target_layers) != N_FEATURES:
            raise hparams.wrong("target_layers", f"is {self.target_layers}, expected {N_FEATURES} layers of the target")

    def features(self, g: GraphBuilder) -> None:
        """Read ``features [t, 3 n_target]``, inputs of the target's layers; output ``hidden [t, n_embd]``."""
        x: Tensor = g.input("features", (N_TOKENS, N_FEATURES * self.n_target))
        if self.hparams.get_bool("norm_before_fc", False):
            x = self.norm(g, x, "enc.output_norm")
        g.output("hidden", g.get_rows(linear(g, x, "fc", self.n_embd), g.output_ids))

    def build(self, g: GraphBuilder) -> Tensor:
        """Read a token, and ``hidden [t, n_embd]`` of the previous position."""
        before = g.input("hidden", (N_TOKENS, self.n_embd))
        with g.layer(0) as blk:
            token = self.norm(g, self.token(g), blk + "attn_norm")
            normed = self.norm(g, before, blk + "attn_norm_2")
            kept = normed if self.hparams.get_bool("norm_before_residual", False) else before
            x = kept + self.attention(g, g.concat(token, normed), blk, 0)
            x = x + self.feed_forward(g, self.norm(g, x, blk + "ffn_norm"), blk, 0)
        x = g.get_rows(x, g.output_ids)
        g.output("hidden", x)
        return self.logits(g, self.norm(g, x, "output_norm"))

    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        """Attend with token and hidden state concatenated; the result has the width of one."""
        heads, rope, t = self.heads(i), self.rope(g, i), x.shape[0]
        q, k, v = (
            linear(g, x, f"{blk}attn_{name}", n * dim).reshape(t, n, dim)
            for name, n, dim in (
                ("q", heads.n_head, heads.k_dim),
                ("k", heads.n_head_kv, heads.k_dim),
                ("v", heads.n_head_kv, heads.v_dim),
            )
        )
        if rope:
            q, k = rope(g, q), rope(g, k)
        y = g.attention(q, k, v, scale=heads.k_dim**-0.5).reshape(t, heads.n_head * heads.v_dim)
        return linear(g, y, blk + "attn_output", self.n_embd)
