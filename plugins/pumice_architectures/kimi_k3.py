"""Kimi K3 (Moonshot 2026): Kimi Linear whose layers attend to the inputs of earlier layers; narrow experts."""

from __future__ import annotations

from pumice.plugin import GraphBuilder, HParams, Tensor
from pumice.plugin.nn import Heads, mixture_of_experts, shared_expert
from pumice.plugin.nn.blocks import Join, attention_gate, linear, softcap
from pumice.plugin.nn.recurrent import split
from pumice_architectures.kimi_linear import KimiLinear


class KimiK3(KimiLinear):
    normalize = None
    compressed = True
    scaled = frozenset()

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.bank_every = hparams.get_int("attn_res.block_size")
        self.beta = hparams.number("activation.situ_beta", low=1e-6)
        self.linear_beta = hparams.get_float("activation.situ_linear_beta")
        self.bound = hparams.get_float("kda.gate_lower_bound", 0.0)

    def layers(self, g: GraphBuilder) -> Tensor:
        """Store and restart the residual stream at regular intervals of layers."""
        x, banked = self.embed(g), list[Tensor]()
        for i in range(self.n_layer):
            with g.layer(i) as blk:
                h = self.mixed(g, x, banked, blk + "attn_res_score")
                begins = self.bank_every > 0 and i % self.bank_every == 0
                banked += [x] if begins else []
                h = self.attention(g, self.norm(g, h, blk + "attn_norm"), blk, i)
                x = h if begins else x + h
                h = self.mixed(g, x, banked, blk + "ffn_res_score")
                x = g.layer_output(x + self.feed_forward(g, self.norm(g, h, blk + "ffn_norm"), blk, i))
        return self.mixed(g, x, banked, "output_res_score")

    def mixed(self, g: GraphBuilder, x: Tensor, banked: list[Tensor], name: str) -> Tensor:
        """Mix the stored streams and ``x`` by the softmax of the products of their norms with a vector."""
        if not banked:
            return x
        score = g.weight(f"{name}.weight", (self.n_embd,))
        streams = [*banked, x]
        first, *others = (g.sum(g.rms_norm(y, score, self.eps), axis=-1, keepdims=True) for y in streams)
        for other in others:
            first = g.concat(first, other)
        first, *others = (y * p for y, p in zip(streams, split(g, g.softmax(first), *[1] * len(streams)), strict=True))
        for other in others:
            first = first + other
        return first

    def finish(self, g: GraphBuilder, x: Tensor, y: Tensor, blk: str, heads: Heads) -> Tensor:
        gated = g.find_weight(f"{blk}attn_gate.weight") is not None
        return attention_gate(g, x, blk, heads, g.sigmoid)(y) if gated else y

    def projected(self, g: GraphBuilder, x: Tensor, name: str, rank: int, n_out: int) -> Tensor:
        """Project by one matrix of full rank for the gate."""
        return linear(g, x, name, n_out) if name.endswith("ssm_g") else super().projected(g, x, name, rank, n_out)

    def join(self, g: GraphBuilder, i: int, block: str) -> Join:
        """Return SiTU: SiLU and a linear part, both bounded."""
        beta, bound = self.beta, max(self.linear_beta, 0.0)
        return lambda gate, up: softcap(g, gate, beta) * g.sigmoid(gate) * softcap(g, up, bound)

    def feed_forward(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        """Apply experts between narrower projections; shared experts read all of ``x``."""
        narrow = self.hparams.get_int("expert_latent_length", 0)
        if self.is_dense(i) or narrow <= 0:
            return super().feed_forward(g, x, blk, i)
        y = linear(g, x, blk + "ffn_routed_down", narrow)
        y = mixture_of_experts(g, y, blk, self.experts(i), self.join(g, i, "exps"), router_input=x)
        if g.find_weight(f"{blk}ffn_routed_norm.weight"):
            y = self.norm(g, y, blk + "ffn_routed_norm")
        y = linear(g, y, blk + "ffn_routed_up", self.n_embd)
        return y + shared_expert(g, x, blk, self.shared_width(i), self.join(g, i, "shexp"))
