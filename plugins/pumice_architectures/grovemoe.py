"""GroveMoE (inclusionAI 2025, arXiv:2508.07785)."""

from __future__ import annotations

from dataclasses import replace

from pumice.plugin import GraphBuilder, HParams, Tensor
from pumice.plugin.nn.blocks import linear
from pumice.plugin.nn.expert_decoder import ExpertDecoder
from pumice.plugin.nn.experts import run_experts


class GroveMoE(ExpertDecoder):
    """Qwen 3 with experts, where each group of experts has one more, the adjugate expert.

    Adjugates are computed as in llama.cpp: an adjugate reads the experts' output, is selected by the best experts (as
    many as there are groups), and gets the weight of the expert with the group's number.
    """

    qk_norm = "before rope"

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.group_scale = hparams.number("expert_group_scale")
        self.group_size = hparams.positive("experts_per_group")

    def feed_forward(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        experts = self.experts(i)
        n_group = experts.n_expert // self.group_size
        if experts.n_expert % self.group_size:
            message = f"is {self.group_size}, expected a divisor of {experts.n_expert} experts"
            raise self.hparams.wrong("experts_per_group", message)
        logits = linear(g, x, f"{blk}ffn_gate_inp", experts.n_expert)
        ids = g.expert_ids(logits, None, n_used=experts.n_expert_used, gate="softmax")
        weights = g.expert_weights(logits, ids, gate="softmax", normalize=True)
        y = run_experts(g, x, blk, experts, ids, weights)

        n_used = min(experts.n_expert_used, n_group)
        best = g.expert_ids(logits, None, n_used=n_used, gate="softmax")
        groups = g.quotient(best, self.group_size)
        weights = g.expert_weights(logits, groups, gate="softmax", normalize=True)
        n_ff = self.hparams.count("expert_chunk_feed_forward_length", i, default=0, low=0) or self.heads(i).k_dim
        adjugates = replace(experts, n_expert=n_group, n_expert_used=n_used, n_ff=n_ff)
        return y + run_experts(g, y, blk, adjugates, groups, weights, suffix="_chexps") * self.group_scale
