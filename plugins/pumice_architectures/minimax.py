"""MiniMax M2 (2025) and M3 (2026)."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from pumice.plugin import GraphBuilder, HParams, Tensor, Weight
from pumice.plugin.nn.blocks import Join, linear, qkv
from pumice.plugin.nn.expert_decoder import ExpertDecoder
from pumice.plugin.nn.experts import gpt_oss_swiglu
from pumice.plugin.unstable import row_size


class MiniMaxM2(ExpertDecoder):
    """Queries and keys are normalized over all heads together; experts are selected with a bias."""

    qk_norm = "before rope"
    qk_norm_is_wide = True
    gate, gate_of_file = "", True
    expert_width = "feed_forward_length"


class MiniMaxM3(ExpertDecoder):
    """Layers with experts attend to the blocks of positions that an indexer ranks highest.

    If the context has no more blocks than are selected, all are attended to, and the indexer is skipped.
    """

    qk_norm = "before rope"
    gate, gate_of_file = "", True
    normalize = None
    shared = "expert_shared_count"

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.n_blocks, self.block_size = (
            hparams.positive(f"attention.indexer.{key}") for key in ("top_k", "block_size")
        )
        self.weights: tuple[Weight, Weight] | None = None  # matrices that map to the signs 1 and -1

    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        if self.is_dense(i) or g.n_ctx <= self.n_blocks * self.block_size:
            return super().attention(g, x, blk, i, **options)
        heads = self.heads(i)
        q, k, v = qkv(g, x, blk, heads)
        q, k = (self.turned(g, y, f"{blk}attn_{name}_norm", i) for y, name in ((q, "q"), (k, "k")))
        groups = zip(*(self.groups(g, y, heads.n_head_kv) for y in (q, k, v)), self.seen(g, x, blk, i), strict=True)
        parts = [g.attention(*tensors, scale=heads.k_dim**-0.5, mask=mask) for *tensors, mask in groups]
        y = reduce(g.concat, [part.reshape(x.shape[0], row_size(part.shape)) for part in parts])
        return linear(g, y, blk + "attn_output", self.n_embd)

    def seen(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> list[Tensor]:
        """Return a mask per key head: an indexer's query ranks blocks by the highest product in them."""
        n_local, dim = (self.hparams.positive(f"attention.indexer.{key}") for key in ("local_blocks", "key_length"))
        n_head_kv = self.heads(i).n_head_kv
        q = linear(g, x, blk + "indexer.q_proj", n_head_kv * dim).reshape(x.shape[0], n_head_kv, dim)
        k = linear(g, x, blk + "indexer.k_proj", dim).reshape(x.shape[0], 1, dim)
        q, k = (self.turned(g, y, f"{blk}indexer.{name}_norm", i) for y, name in ((q, "q"), (k, "k")))
        signs = self.signs(g, x)
        chosen = {"n_chosen": self.n_blocks, "pool": self.block_size, "n_local": min(n_local, self.n_blocks)}
        both = [  # q . k = max(q . k, 0) - max(-q . k, 0)
            g.concat(group, g.scale(group, -1.0)).reshape(x.shape[0], 2, dim) for group in self.groups(g, q, n_head_kv)
        ]
        return [g.choose_positions(group, k, signs, n_ctx=g.n_ctx, **chosen) for group in both]

    def turned(self, g: GraphBuilder, x: Tensor, norm: str, i: int) -> Tensor:
        """Return normalized heads with RoPE."""
        rope = self.rope(g, i)
        assert rope is not None
        return rope(g, self.norm(g, x, norm))

    def signs(self, g: GraphBuilder, x: Tensor) -> Tensor:
        """Return 1 and -1 for each token, ``[t, 2]``."""
        if self.weights is None or self.weights[0].builder is not g:
            self.weights = g.constant("no signs", np.zeros((2, 1))), g.constant("signs", np.array([1.0, -1.0]))
        return g.linear(g.scale(g.slice(x, 0, 1), 0.0), *self.weights)

    def groups(self, g: GraphBuilder, x: Tensor, n: int) -> list[Tensor]:
        """Split heads ``[t, h, d]`` into ``n`` groups."""
        size, dim = int(x.shape[1]) // n, int(x.shape[2])
        flat = x.reshape(x.shape[0], n * size * dim)
        return [g.slice(flat, p * size * dim, (p + 1) * size * dim).reshape(x.shape[0], size, dim) for p in range(n)]

    def join(self, g: GraphBuilder, i: int, block: str) -> Join:
        return gpt_oss_swiglu(g)
