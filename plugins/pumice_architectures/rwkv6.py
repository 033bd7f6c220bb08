"""RWKV 6 (Peng et al. 2024, arXiv:2404.05892), and QRWKV 6, Qwen 2 with its time mix."""

from __future__ import annotations

from typing import Any

import numpy as np

from pumice.plugin import GraphBuilder, Tensor, Weight
from pumice.plugin.nn.blocks import linear, width
from pumice.plugin.nn.recurrent import split
from pumice_architectures.rwkv import RWKV, TimeMixDecoder, between, low_rank, to_previous

INPUTS = "wkvrg"  # decay, keys, values, receptance (queries) and gate, in file order


class TimeMix6(TimeMixDecoder):
    def layer(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        x, every = super().layer(g, x, blk, i), self.hparams.get_int("rescale_every_n_layers", 0)
        return x * 0.5 if every > 0 and (i + 1) % every == 0 else x

    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        xw, xk, xv, xr, xg = self.mixed(g, x, blk)
        rank, n_kv = self.hparams.positive("time_decay_extra_dim"), self.n_key_heads(i) * self.d_head
        w = low_rank(g, xw, blk + "time_mix_decay_w", rank, self.n_embd, g.tanh)
        w = g.exp(g.exp(w + g.weight(f"{blk}time_mix_decay.weight", (self.n_embd,))) * -1.0)
        r = linear(g, xr, blk + "time_mix_receptance", self.n_embd)
        k, v = linear(g, xk, blk + "time_mix_key", n_kv), linear(g, xv, blk + "time_mix_value", n_kv)
        r, k, v, w = (self.of_heads(y) for y in (r, k, v, w))
        y = self.normed(g, self.wkv(g, r, k, v, w, blk), blk)
        gate = self.gate(g, linear(g, xg, blk + "time_mix_gate", self.n_embd))
        return linear(g, y * gate, blk + "time_mix_output", self.n_embd)

    def mixed(self, g: GraphBuilder, x: Tensor, blk: str) -> list[Tensor]:
        """Return the inputs, each blended with the previous token by a fraction that depends on both."""
        n_tokens, n, rank = x.shape[0], width(x), self.hparams.positive("time_mix_extra_dim")
        change = to_previous(g, x)
        y = g.tanh(linear(g, between(g, x, change, f"{blk}time_mix_lerp_x"), blk + "time_mix_w1", 5 * rank))
        far = g.batched_linear(y.reshape(n_tokens, 5, rank), g.weight(f"{blk}time_mix_w2.weight", (5, n, rank)))
        y = (far + self.lerps(g, blk)) * change.reshape(n_tokens, 1, n) + x.reshape(n_tokens, 1, n)
        return split(g, y.reshape(n_tokens, 5 * n), *[n] * 5)

    def lerps(self, g: GraphBuilder, blk: str) -> Weight:
        """Return the blending weights; old files store the five separately."""
        name, shape = f"{blk}time_mix_lerp_fused.weight", (5, self.n_embd)
        if g.find_weight(f"{blk}time_mix_lerp_w.weight") is None:
            return g.weight(name, shape)
        apart = [g.weight(f"{blk}time_mix_lerp_{letter}.weight", shape[1:]) for letter in INPUTS]
        return g.derived(name, shape, lambda *rows: np.stack(rows), *apart)

    def n_key_heads(self, i: int) -> int:
        return self.n_head

    def wkv(self, g: GraphBuilder, r: Tensor, k: Tensor, v: Tensor, w: Tensor, blk: str) -> Tensor:
        """Linear attention: a token's own value is weighted by ``time_mix_first``, earlier values by their decay."""
        first = g.weight(f"{blk}time_mix_first.weight", (self.n_head, self.d_head))
        own = v * g.sum(k * first * r, axis=-1, keepdims=True)
        return g.linear_attention(r, k, v, w, before=True) + own

    def gate(self, g: GraphBuilder, x: Tensor) -> Tensor:
        return g.silu(x)


class RWKV6(TimeMix6, RWKV):
    def feed_forward(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        r = between(g, x, to_previous(g, x), f"{blk}channel_mix_lerp_r")
        r = g.sigmoid(linear(g, r, blk + "channel_mix_receptance", self.n_embd))
        return r * super().feed_forward(g, x, blk, i)


class RWKV6Qwen2(TimeMix6):
    group_norm = False

    def n_key_heads(self, i: int) -> int:
        n_key_heads = self.hparams.count("attention.head_count_kv", i, default=0, low=0) or self.n_head
        if self.n_head % n_key_heads:
            raise self.hparams.wrong(
                "attention.head_count_kv", f"is {n_key_heads}, expected a divisor of {self.n_head} heads"
            )
        return n_key_heads

    def wkv(self, g: GraphBuilder, r: Tensor, k: Tensor, v: Tensor, w: Tensor, blk: str) -> Tensor:
        """Linear attention with grouped keys and values, where keys are scaled by one minus the decay."""
        k, v = self.repeated(g, k), self.repeated(g, v)
        return g.linear_attention(r * self.d_head**-0.5, k + k * w * -1.0, v, w)

    def repeated(self, g: GraphBuilder, x: Tensor) -> Tensor:
        y = x
        for _ in range(self.n_head // int(x.shape[1]) - 1):
            y = g.concat(y, x)
        return y.reshape(x.shape[0], self.n_head, self.d_head)

    def gate(self, g: GraphBuilder, x: Tensor) -> Tensor:
        return g.sigmoid(x)
