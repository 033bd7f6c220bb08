"""Step 3.5 and 3.7 Flash (StepFun 2026)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn.blocks import Join, attention_gate
from pumice.plugin.nn.expert_decoder import ExpertDecoder
from pumice.plugin.nn.experts import late_clamped_swiglu, read_limit
from pumice.plugin.nn.rope import Rope, sliding_rope

SLIDING_BASE = 10000.0  # RoPE base of sliding layers


class Step35(ExpertDecoder):
    """A gate per head, sliding windows, and activations clamped by a limit per layer.

    Global layers rotate half of ``rope.dimension_count`` values of a head.
    """

    drafts = "before norm"
    gate, gate_of_file = "sigmoid", True
    normalize = None
    dense_without_router = True
    shared = "expert_shared_feed_forward_length"
    sliding_layers = "listed"

    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        if g.find_weight(f"{blk}attn_gate.weight"):
            options["finish"] = attention_gate(g, x, blk, self.heads(i), g.sigmoid)
        if g.find_weight(f"{blk}attn_q_norm.weight"):
            options["norm"] = self.norm
        return super().attention(g, x, blk, i, **options)

    def rope(self, g: GraphBuilder, i: int) -> Rope | None:
        rope = super().rope(g, i)
        if rope is None:
            return None
        if self.window(i):
            plain = replace(rope, freq_scale=1.0, factors=None)
            return sliding_rope(self.hparams, plain, self.heads(i).k_dim, SLIDING_BASE)
        if rope.n_rot % 4:
            raise self.hparams.wrong("rope.dimension_count", f"is {rope.n_rot}, it must be a multiple of 4")
        factors = rope.factors.rows(0, rope.n_rot // 4) if rope.factors else None
        return replace(rope, n_rot=rope.n_rot // 2, factors=factors)

    def join(self, g: GraphBuilder, i: int, block: str) -> Join:
        key = "swiglu_clamp_exp" if block == "exps" else "swiglu_clamp_shexp"
        return late_clamped_swiglu(g, read_limit(self.hparams, key, i, 0.0))
