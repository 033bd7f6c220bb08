"""Kolibri 1 (Aleph Alpha 2026) and Flint (Recursive SI 2026)."""

from __future__ import annotations

from dataclasses import replace

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn.blocks import linear
from pumice.plugin.nn.expert_decoder import ExpertDecoder
from pumice.plugin.nn.experts import choose_by_logits, run_experts, shared_expert


class Kolibri(ExpertDecoder):
    """Only layers with a window have positions; experts beside a shared one, norms before and after the blocks."""

    norms_after = ("post_attention_norm", "post_ffw_norm")
    qk_norm = "before rope"
    gate = "sigmoid"
    normalize = None
    shared = "expert_shared_feed_forward_length"
    sliding_layers = "listed"
    rope_layers = "sliding"

    def feed_forward(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        """Experts are chosen by their logits and a bias; the sigmoids of the logits weigh them."""
        bias = g.find_weight(f"{blk}exp_probs_b.bias")
        if bias is None:
            return super().feed_forward(g, x, blk, i)
        experts = self.experts(i)
        logits = linear(g, x, f"{blk}ffn_gate_inp", experts.n_expert)
        ids, _ = choose_by_logits(g, logits, bias, replace(experts, gate="softmax_of_chosen"))
        weights = g.expert_weights(logits, ids, gate=experts.gate, normalize=experts.normalize)
        y = run_experts(g, x, blk, experts, ids, weights)
        return y + shared_expert(g, x, blk, self.shared_width(i))


class Flint(Kolibri):
    """Attention sinks, dense layers, and no norms after the blocks."""

    norms_after = ("", "")
    sinks = True
    dense_without_router = True
