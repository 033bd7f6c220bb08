"""Granite Switch (IBM 2026): several LoRA adapters in one model (Hu et al. 2021, arXiv:2106.09685), selected by tokens.

An activating token is replaced by another in the embeddings; its adapter applies from there on. Each matrix has a
low-rank pair for each slot: slot 0 is the model without adapters, slot i + 1 is adapter i.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pumice.plugin import GraphBuilder, HParams, Tensor
from pumice.plugin.nn.blocks import linear, n_vocab, qkv, width
from pumice_architectures.granite import Granite

MOST = 4096  # limit of adapters and of their rank, as in llama.cpp


class GraniteSwitch(Granite):
    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.n_adapters, self.rank = (hparams.positive(f"adapters.{name}") for name in ("count", "lora_rank"))
        for key, value in (("adapters.count", self.n_adapters), ("adapters.lora_rank", self.rank)):
            if value > MOST:
                raise hparams.wrong(key, f"is {value}, it must be at most {MOST}")
        self.gain = hparams.number("adapters.router_gain", 15.0)

    def embed(self, g: GraphBuilder) -> Tensor:
        activating, substitutes = (self.token_ids(g, name) for name in ("activate", "substitute"))
        marks = np.zeros((n_vocab(g), self.n_adapters), np.float32)
        marks[activating, range(self.n_adapters)] = 1
        # [t, n_adapters], 1 at an activating token.
        chosen = g.embedding(g.constant("adapters.tokens", marks), g.tokens)
        begins = g.sum(chosen, axis=-1, keepdims=True)
        self.slots = self.current_slots(g, chosen, begins)

        table = g.weight("token_embd.weight")
        rows = [table.rows(token, token + 1).dequantize() for token in substitutes]
        instead = g.constant("adapters.embeddings", np.concatenate(rows).T)
        x = super().embed(g)
        return x * g.scale(begins, -1.0, 1.0) + g.linear(chosen, instead) * self.embedding_scale

    def token_ids(self, g: GraphBuilder, name: str) -> list[int]:
        key = f"adapters.token_ids_{name}"
        ids = self.hparams.per_layer(key, self.n_adapters)
        if any(isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < n_vocab(g) for token in ids):
            raise self.hparams.wrong(key, f"must list {self.n_adapters} tokens of the vocabulary")
        return ids

    def current_slots(self, g: GraphBuilder, chosen: Tensor, begins: Tensor) -> Tensor:
        """Return the active slot, int32 ``[t, 1]``: the rounded mean slot of all activations, computed by attention."""
        tokens, n_slots, heads = begins.shape[0], self.n_adapters + 1, self.heads(0)
        g.weight("blk.0.attn_q.lora_b", (n_slots, heads.n_head * heads.k_dim, self.rank))  # sizes from the file
        first = np.eye(1, heads.k_dim, dtype=np.float32).T  # selects the first value of a head
        spread = g.constant("adapters.spread", first)
        numbers = g.constant("adapters.slots", np.arange(1, n_slots)[None])
        q, k, v = (
            g.linear(y, spread).reshape(tokens, 1, len(first))
            for y in (
                g.scale(begins, 0.0, 1.0),
                g.scale(begins, 2 * self.gain, -self.gain),
                g.linear(chosen, numbers),
            )
        )
        slot = g.slice(g.attention(q, k, v, scale=1.0).reshape(tokens, len(first)), 0, 1)
        ones, negated = np.ones((n_slots, 1)), -np.arange(n_slots)
        distance = g.linear(slot, g.constant("adapters.ones", ones), g.constant("adapters.negated", negated))
        return g.top_k(distance * distance * -1.0, 1)

    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        heads, rope = self.heads(i), self.rope(g, i)
        names = ("attn_q", "attn_k", "attn_v")
        plain = zip(qkv(g, x, blk, heads), names, strict=True)
        q, k, v = (y + self.delta(g, x, blk + name, row_size(y)).reshape(*y.shape) for y, name in plain)
        if rope:
            q, k = rope(g, q), rope(g, k)
        y = g.attention(q, k, v, scale=self.attention_scale or heads.k_dim**-0.5)
        return self.switched(g, y.reshape(x.shape[0], row_size(y)), blk + "attn_output", self.n_embd)

    def feed_forward(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        gate, up = (self.switched(g, x, blk + name, self.n_ff(i)) for name in ("ffn_gate", "ffn_up"))
        return self.switched(g, g.silu(gate) * up, blk + "ffn_down", self.n_embd)

    def switched(self, g: GraphBuilder, x: Tensor, name: str, n_out: int) -> Tensor:
        return linear(g, x, name, n_out) + self.delta(g, x, name, n_out)

    def delta(self, g: GraphBuilder, x: Tensor, name: str, n_out: int) -> Tensor:
        """Return what each token's adapter adds, ``[t, n_out]``, to the product of ``x [t, k]`` and a matrix."""
        n_slots = self.n_adapters + 1
        down = g.weight(f"{name}.lora_a", (n_slots, self.rank, width(x)))
        y = g.mul_mat_id(x, down, self.slots)
        return g.mul_mat_id(y, g.weight(f"{name}.lora_b", (n_slots, n_out, self.rank)), self.slots).reshape(
            x.shape[0], n_out
        )


def row_size(x: Tensor) -> int:
    """Return the number of values of a token in all heads."""
    return int(x.shape[1]) * width(x)
