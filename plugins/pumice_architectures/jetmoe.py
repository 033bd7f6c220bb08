"""JetMoE (Shen et al. 2024, arXiv:2404.07413): experts in feed-forward blocks and in attention."""

from __future__ import annotations

from functools import reduce
from typing import Any

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn.blocks import linear, rms_norm, width
from pumice.plugin.nn.decoder import Decoder
from pumice.plugin.nn.experts import (
    Experts,
    choose_by_logits,
    expert_linear,
    mixture_of_experts,
    read_experts,
)
from pumice_architectures.epsilons import inner_eps


class JetMoE(Decoder):
    """Each attention expert has a query head for each key head, and an output matrix."""

    def norm(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        return rms_norm(g, x, name, self.eps if name == "output_norm" else inner_eps(self.hparams, self.eps))

    def experts(self, i: int) -> Experts:
        return read_experts(self.hparams, i, gate="softmax_of_chosen", normalize=False)

    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        heads, experts, rope, n_tokens = self.heads(i), self.experts(i), self.rope(g, i), x.shape[0]
        n_kv, d, n_used = heads.n_head_kv, heads.k_dim, experts.n_expert_used
        logits = linear(g, x, f"{blk}attn_gate_inp", experts.n_expert)
        ids, weights = choose_by_logits(g, logits, None, experts)
        q = expert_linear(g, x, f"{blk}attn_q_exps", ids, experts.n_expert, n_kv * d)
        q = swapped(g, q.reshape(n_tokens, n_used, n_kv * d), n_kv).reshape(n_tokens, n_kv * n_used, d)
        k, v = (linear(g, x, f"{blk}attn_{name}", n_kv * d).reshape(n_tokens, n_kv, d) for name in "kv")
        if rope:
            q, k = rope(g, q), rope(g, k)
        y = g.attention(q, k, v, scale=d**-0.5)
        y = swapped(g, y.reshape(n_tokens, n_kv, n_used * d), n_used).reshape(n_tokens, n_used, n_kv * d)
        y = expert_linear(g, y, f"{blk}attn_output_exps", ids, experts.n_expert, self.n_embd)
        return g.expert_sum(y, weights) + g.weight(f"{blk}attn_output.bias", (self.n_embd,))

    def feed_forward(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        return mixture_of_experts(g, x, blk, self.experts(i)) + g.weight(f"{blk}ffn_down.bias", (self.n_embd,))


def swapped(g: GraphBuilder, x: Tensor, n: int) -> Tensor:
    """Swap the axes of ``m`` and of ``n`` in ``x [t, m, n * d]``: ``[t, n, m * d]``."""
    n_tokens, m, d = x.shape[0], int(x.shape[1]), width(x) // n
    flat = x.reshape(n_tokens, m * n * d)
    rows = [g.slice(flat, j * n * d, (j + 1) * n * d).reshape(n_tokens, n, d) for j in range(m)]
    return reduce(g.concat, rows)
