"""DeepSeek V4 (2026): sliding windows plus pooled keys; residual streams; experts selected by token."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np

from pumice.plugin import GraphBuilder, HParams, Tensor
from pumice.plugin.nn import Rope, frequency_base, read_rope, shared_expert, sliding_window
from pumice.plugin.nn.blocks import Join, attention_sinks, linear, n_vocab
from pumice.plugin.nn.expert_decoder import ExpertDecoder
from pumice.plugin.nn.experts import choose_experts, clamped_swiglu, read_limit, run_experts
from pumice.plugin.nn.pools import mask_of_ends, pooled
from pumice.plugin.nn.recurrent import split
from pumice.plugin.nn.streams import StreamDecoder, read_streams
from pumice.plugin.unstable import KVState, MediaRules

CHOSEN = 4  # positions per pool if an indexer selects the attended pools
ALL = 128  # positions per pool if all pools are attended to
MOST_OF_IMAGE = 512  # tokens; published models have 384


class DeepSeek4Layers(StreamDecoder, ExpertDecoder):
    """Layers with a sliding window: one head of keys that double as values, and an output matrix per group of heads."""

    gate, gate_of_file = "", True
    scaled = frozenset({"eh_proj"})
    normalize = None
    shared = "expert_shared_count"
    neox = False

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.streams = read_streams(hparams, self.n_embd, self.eps, iterated=True)
        self.q_rank, self.n_group, self.out_rank = (
            hparams.positive(f"attention.{key}") for key in ("q_lora_rank", "output_group_count", "output_lora_rank")
        )

    def rope(self, g: GraphBuilder, i: int) -> Rope:
        """Return RoPE without scaling."""
        rope = read_rope(self.hparams, g, self.heads(i).k_dim, neox=self.neox)
        return replace(rope, freq_scale=1.0, ext_factor=0.0, attn_factor=1.0)

    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        heads, rope = self.heads(i), self.rope(g, i)
        n_head, dim = heads.n_head, heads.k_dim
        if n_head % self.n_group:
            raise self.hparams.wrong(
                "attention.output_group_count", f"is {self.n_group}, expected a divisor of {n_head} heads"
            )
        compressed = self.norm(g, linear(g, x, blk + "attn_q_a", self.q_rank), blk + "attn_q_a_norm")
        q = linear(g, compressed, blk + "attn_q_b", n_head * dim).reshape(x.shape[0], n_head, dim)
        q = turn_end(g, g.rms_norm(q, None, self.eps), rope)
        y = self.attended(g, x, compressed, q, blk, i)
        return self.output(g, turn_end(g, y, rope, back=True).reshape(x.shape[0], n_head * dim), blk)

    def attended(self, g: GraphBuilder, x: Tensor, compressed: Tensor, q: Tensor, blk: str, i: int) -> Tensor:
        """Return the attention results ``[t, n_head, k_dim]``; ``compressed`` is the input of the query projection."""
        return self.near(g, x, q, blk, i)

    def near(self, g: GraphBuilder, x: Tensor, q: Tensor, blk: str, i: int, log_sum: bool = False) -> Tensor:
        """Return attention within the window. The cache keeps an image if the file has routers for images."""
        dim, seen = self.heads(i).k_dim, self.seen(g, blk, i)
        sees = g.find_weight(f"{blk}{self.media_rules.router_bias}.bias") is not None
        if sees:
            seen["cache"] = KVState("kv", 1, dim, 0, max(seen["window"], MOST_OF_IMAGE + 1))
        return g.attention(q, self.key(g, x, blk, i), None, scale=dim**-0.5, v_dim=dim, log_sum=log_sum, **seen)

    def key(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        """Return the keys ``[t, 1, k_dim]``."""
        dim = self.heads(i).k_dim
        k = self.norm(g, linear(g, x, blk + "attn_kv", dim), blk + "attn_kv_a_norm")
        return turn_end(g, k.reshape(x.shape[0], 1, dim), self.rope(g, i))

    def seen(self, g: GraphBuilder, blk: str, i: int) -> dict[str, Any]:
        """Return options of attention."""
        sinks = attention_sinks(g, blk, self.heads(i).n_head)
        return {"window": sliding_window(self.hparams, None), "sinks": sinks}

    def output(self, g: GraphBuilder, y: Tensor, blk: str) -> Tensor:
        """Project each group of heads by its own matrix, then all of them by one."""
        width, rows = int(y.shape[1]) // self.n_group, self.n_group * self.out_rank
        name = f"{blk}attn_output_a.weight"
        if len(g.weight(name).shape) == 3:
            apart = g.weight(name, (self.n_group, self.out_rank, width))
            z = g.batched_linear(y.reshape(y.shape[0], self.n_group, width), apart).reshape(y.shape[0], rows)
            return linear(g, z, blk + "attn_output_b", self.n_embd)
        weight = g.weight(name, (rows, width))
        parts = zip(split(g, y, *[width] * self.n_group), range(0, rows, self.out_rank), strict=True)
        z = reduce(g.concat, [g.linear(part, weight.rows(row, row + self.out_rank)) for part, row in parts])
        return linear(g, z, blk + "attn_output_b", self.n_embd)

    def feed_forward(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        y = run_experts(g, x, blk, self.experts(i), *self.chosen(g, x, blk, i), self.join(g, i, "exps"))
        return y + shared_expert(g, x, blk, self.shared_width(i), self.join(g, i, "shexp"))

    def chosen(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> tuple[Tensor, Tensor]:
        """Return int32 ids and float32 weights ``[t, n_expert_used]``."""
        return choose_experts(g, x, blk, self.experts(i))

    def join(self, g: GraphBuilder, i: int, block: str) -> Join:
        limit = read_limit(self.hparams, "swiglu_clamp_exp", i)
        return clamped_swiglu(g, limit if block == "exps" else read_limit(self.hparams, "swiglu_clamp_shexp", i, limit))


class DeepSeek4(DeepSeek4Layers):
    drafts = "before norm"

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.n_index_head, self.index_dim, self.n_chosen = (
            hparams.positive(f"attention.indexer.{key}") for key in ("head_count", "key_length", "top_k")
        )
        self.n_hashed = hparams.get_int("hash_layer_count")
        self.media_rules = MediaRules(
            both_ways=("image", "audio", "video"),
            windows_only=True,  # a token of an image sees the pools that it would see as text
            windowless=MOST_OF_IMAGE,
            pads=True,
            router_bias="exp_probs_b_vl",
        )

    def pool(self, i: int) -> int:
        """Return the positions per pool of layer ``i``; 0 without pools."""
        size = self.hparams.count("attention.compress_ratios", i, low=0)
        if size not in (0, CHOSEN, ALL):
            raise self.hparams.wrong("attention.compress_ratios", f"is {size} for layer {i}, expected 0, 4 or 128")
        return size

    def rope(self, g: GraphBuilder, i: int) -> Rope:
        """Return RoPE with scaling in layers with pools, without YaRN's magnitude."""
        if not self.pool(i):
            return super().rope(g, i)
        rope = read_rope(self.hparams, g, self.heads(i).k_dim, neox=self.neox)
        rope = replace(rope, freq_base=frequency_base(self.hparams, "attention.compress_rope_freq_base"))
        if not rope.magnitude:
            raise self.hparams.wrong("rope.scaling.attn_factor", "is 0, it must be above 0")
        return replace(rope, attn_factor=rope.attn_factor / rope.magnitude)

    def attended(self, g: GraphBuilder, x: Tensor, compressed: Tensor, q: Tensor, blk: str, i: int) -> Tensor:
        if not self.pool(i):
            return super().attended(g, x, compressed, q, blk, i)
        dim = self.heads(i).k_dim
        near = self.near(g, x, q, blk, i, log_sum=True)
        keys, mask = self.pools(g, x, compressed, blk, self.rope(g, i), i)
        return merged(g, near, g.attention(q, keys, None, scale=dim**-0.5, v_dim=dim, log_sum=True, mask=mask))

    def pools(
        self, g: GraphBuilder, x: Tensor, compressed: Tensor, blk: str, rope: Rope, i: int
    ) -> tuple[Tensor, Tensor]:
        """Return pooled keys ``[t, 1, k_dim]``, and the mask of attended pools."""
        size, dim = self.pool(i), self.heads(i).k_dim
        k = self.pooled(g, x, blk, "attn_compressor", size, dim, rope)
        mask = mask_of_ends(g, x, size, g.n_ctx, f"{blk}ends")
        if size == CHOSEN and g.n_ctx // size > self.n_chosen:
            n_head, dim = self.n_index_head, self.index_dim
            q = linear(g, compressed, blk + "indexer.attn_q_b", n_head * dim).reshape(x.shape[0], n_head, dim)
            keys = self.pooled(g, x, blk, "indexer_compressor", size, dim, rope)
            weights = linear(g, x, blk + "indexer.proj", n_head)
            q = turn_end(g, q, rope)
            mask = mask + g.choose_positions(q, keys, weights, n_chosen=self.n_chosen, n_ctx=g.n_ctx, pool=size)
        return k, mask

    def pooled(self, g: GraphBuilder, x: Tensor, blk: str, name: str, size: int, dim: int, rope: Rope) -> Tensor:
        """Return pooled keys ``[t, 1, dim]``, rotated by the position of a pool's first token."""
        n = 2 * dim if size == CHOSEN else dim
        values, scores = (linear(g, x, f"{blk}{name}_{part}", n) for part in ("kv", "gate"))
        places = g.weight(f"{blk}{name}_ape.weight", (size, n))
        k = pooled(g, values, scores, places, f"{blk}{name} taps", overlapping=size == CHOSEN)
        k = self.norm(g, k, f"{blk}{name}_norm").reshape(x.shape[0], 1, dim)
        return turn_end(g, turn_end(g, k, rope), rope, by=1 - size, name=f"{blk}{name} to the first")

    def chosen(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> tuple[Tensor, Tensor]:
        if i >= self.n_hashed:
            return super().chosen(g, x, blk, i)
        experts = self.experts(i)
        logits = linear(g, x, f"{blk}ffn_gate_inp", experts.n_expert)
        ids = self.experts_of_tokens(g, blk, experts.n_expert, experts.n_expert_used)
        return ids, g.expert_weights(logits, ids, gate=experts.gate, normalize=experts.normalize, scale=experts.scale)

    def experts_of_tokens(self, g: GraphBuilder, blk: str, n_expert: int, n_used: int) -> Tensor:
        """Return int32 ``[t, n_used]``: a table has the experts of each token, as numbers to be rounded."""
        name = f"{blk}ffn_gate_tid2eid.weight"
        table = g.weight(name, (n_vocab(g), n_used))
        numbers = g.derived(f"{name}, as numbers", (n_vocab(g), n_used), lambda ids: ids, table)
        repeated, negated = np.repeat(np.eye(n_used), n_expert, axis=0), np.tile(-np.arange(n_expert), n_used)
        distance = g.linear(
            g.embedding(numbers, g.tokens), g.constant(f"{blk}repeated", repeated), g.constant(f"{blk}negated", negated)
        ).reshape(g.tokens.shape[0], n_used, n_expert)
        return g.top_k(distance * distance * -1.0, 1).reshape(g.tokens.shape[0], n_used)


def merged(g: GraphBuilder, near: Tensor, far: Tensor) -> Tensor:
    """Merge attention over two sets of keys, ``[t, h, e + 1]`` each with log-sums, to ``[t, h, e]``."""
    dim = int(near.shape[2]) - 1
    shares = g.softmax(g.concat(g.slice(near, dim, dim + 1), g.slice(far, dim, dim + 1)))
    return g.slice(near, 0, dim) * g.slice(shares, 0, 1) + g.slice(far, 0, dim) * g.slice(shares, 1, 2)


def turn_end(g: GraphBuilder, x: Tensor, rope: Rope, *, back: bool = False, by: int = 0, name: str = "") -> Tensor:
    """Rotate the last ``n_rot`` values of each head by their positions, inversely if ``back``; or all by ``by``."""
    dim, n = int(x.shape[2]), rope.n_rot
    end = g.slice(x, dim - n, dim)
    if by:
        end = g.linear(end, g.constant(name, turning(rope, by)))
    else:
        freqs = tuple(-freq for freq in rope.freqs) if back else rope.freqs
        end = g.rope(end, g.positions, freqs=freqs, neox=rope.neox, magnitude=rope.magnitude)
    return end if n == dim else g.concat(g.slice(x, 0, dim - n), end)


def turning(rope: Rope, by: int) -> np.ndarray:
    """Return the matrix ``[n_rot, n_rot]`` that rotates pairs ``(2 i, 2 i + 1)`` by a distance."""
    angles = by * np.array(rope.freqs)
    matrix, even = np.zeros((rope.n_rot, rope.n_rot)), 2 * np.arange(len(angles))
    matrix[even, even] = matrix[even + 1, even + 1] = np.cos(angles)
    matrix[even, even + 1], matrix[even + 1, even] = -np.sin(angles), np.sin(angles)
    return matrix
