"""Nemotron-H and Nemotron 3 (NVIDIA 2025, arXiv:2504.03624): a layer is Mamba 2, attention, or a feed-forward block."""

from __future__ import annotations

from pumice.plugin import GraphBuilder, HParams, Tensor
from pumice.plugin.nn import blocks, choose_experts, expert_linear, n_expert, optional, read_experts, recurrent


class NemotronH(recurrent.Hybrid):
    eps_key = "attention.layer_norm_epsilon"
    scaled = recurrent.Hybrid.scaled | optional.FEED_FORWARD | optional.EXPERTS | optional.SHARED
    drafts = "after norm"

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.draft_eps = self.eps
        self.eps = hparams.number("attention.layer_norm_rms_epsilon", self.eps)

    def layer(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        if i >= self.n_layer:  # a draft layer has both
            x = x + self.attention(g, self.norm(g, x, blk + "attn_norm"), blk, i)
            return x + self.feed_forward(g, self.norm(g, x, blk + "post_attention_norm"), blk, i)
        block = self.feed_forward if self.hparams.count("feed_forward_length", i, low=0) else self.attention
        return x + block(g, self.norm(g, x, blk + "attn_norm"), blk, i)

    def norm(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        """Apply RMSNorm, or LayerNorm before the logits of a draft."""
        if name.endswith("nextn.shared_head_norm"):
            return blocks.layer_norm(g, x, name, self.draft_eps)
        return super().norm(g, x, name)

    def mixer(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        space = recurrent.read_state_space(self.hparams, heads=True)
        return recurrent.mamba2(g, x, blk, space, self.eps)

    def rope(self, g: GraphBuilder, i: int) -> None:
        """Return None: the state spaces encode positions."""

    def feed_forward(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        if n_expert(self.hparams):
            shared = self.hparams.positive("expert_shared_feed_forward_length")
            return self.experts(g, x, blk, i) + squared(g, x, blk, shared, "_shexp")
        return squared(g, x, blk, self.n_ff(i), "")

    def experts(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        """Apply ungated experts, between narrower projections if the file has them."""
        experts = read_experts(self.hparams, i, gate="sigmoid", normalize=None)
        ids, weights = choose_experts(g, x, blk, experts)
        narrow = self.hparams.get_int("moe_latent_size", 0)
        y = blocks.linear(g, x, blk + "ffn_latent_down", narrow) if narrow else x
        n_in = blocks.width(y)
        y = g.relu_squared(expert_linear(g, y, f"{blk}ffn_up_exps", ids, experts.n_expert, experts.n_ff))
        y = g.expert_sum(expert_linear(g, y, f"{blk}ffn_down_exps", ids, experts.n_expert, n_in), weights)
        return blocks.linear(g, y, blk + "ffn_latent_up", self.n_embd) if narrow else y


def squared(g: GraphBuilder, x: Tensor, blk: str, n_ff: int, suffix: str) -> Tensor:
    """Return ``down(relu(up(x))^2)``."""
    y = g.relu_squared(blocks.linear_then_scale(g, x, f"{blk}ffn_up{suffix}", n_ff))
    return blocks.linear_then_scale(g, y, f"{blk}ffn_down{suffix}", blocks.width(x))
