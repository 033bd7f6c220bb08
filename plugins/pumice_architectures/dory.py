"""Dory (2026): a normalized Transformer (nGPT, Loshchilov et al. 2024, arXiv:2410.01131) whose middle layers loop."""

from __future__ import annotations

from typing import Any

from pumice.plugin import GraphBuilder, HParams, Tensor
from pumice.plugin.nn.blocks import attend, linear, qkv, width
from pumice.plugin.nn.decoder import Decoder
from pumice.plugin.nn.recurrent import l2_norm


class Dory(Decoder):
    """Hidden states have length 1, and move towards the results of blocks by a rate for each channel."""

    sliding_layers = "listed"
    own_sliding_rope = unscaled_sliding_rope = True

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.n_loops = hparams.positive("num_loops")
        self.n_first, self.n_last = (hparams.get_int(f"{name}_block_count") for name in ("input", "output"))
        if not 0 <= self.n_first <= self.n_layer - self.n_last <= self.n_layer:
            raise hparams.wrong("input_block_count", f"is {self.n_first}, more than {self.n_layer} layers allow")

    def layers(self, g: GraphBuilder) -> Tensor:
        stop = self.n_layer - self.n_last
        x = self.run(g, self.embed(g), range(self.n_first))
        first = self.norm(g, x, "")
        for _ in range(self.n_loops):
            x = self.run(g, self.norm(g, x, "") + first, range(self.n_first, stop))
        return self.run(g, x, range(stop, self.n_layer))

    def run(self, g: GraphBuilder, x: Tensor, layers: range) -> Tensor:
        for i in layers:
            with g.layer(i) as blk:
                x = g.layer_output(self.layer(g, x, blk, i))
        return x

    def layer(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        for block, name in ((self.attention, "attn_rate"), (self.feed_forward, "ffn_rate")):
            x = self.norm(g, x, "")
            y = self.norm(g, block(g, x, blk, i), "")
            x = x + (y + x * -1.0) * g.weight(f"{blk}{name}.weight", (self.n_embd,))
        return x

    def norm(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        return l2_norm(g, x, self.eps)

    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        heads, rope = self.heads(i), self.rope(g, i)
        q, k, v = qkv(g, x, blk, heads)
        q, k = self.norm(g, q, ""), self.norm(g, k, "")
        if rope:
            q, k = rope(g, q), rope(g, k)
        n = heads.n_head * heads.k_dim
        q = scaled(g, q.reshape(x.shape[0], n), f"{blk}attn_q_scale").reshape(*q.shape)
        gate = g.sigmoid(scaled(g, linear(g, x, f"{blk}attn_gate", n), f"{blk}attn_gate_scale"))
        options |= {"finish": lambda y: self.norm(g, y * gate, ""), "window": self.window(i)}
        return attend(g, blk, q, k, v, self.n_embd, **options)

    def feed_forward(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        names = f"{blk}ffn_gate", f"{blk}ffn_up"
        gate, up = (scaled(g, linear(g, x, name, self.n_ff(i)), f"{name}_scale") for name in names)
        return linear(g, self.norm(g, g.silu(gate) * up, ""), f"{blk}ffn_down", self.n_embd)

    def head(self, g: GraphBuilder, x: Tensor) -> Tensor:
        return scaled(g, super().head(g, x), "output_scale")


def scaled(g: GraphBuilder, x: Tensor, name: str) -> Tensor:
    """Return ``x`` with a factor for each value of its last axis."""
    return x * g.weight(f"{name}.weight", (width(x),))
