"""Models that run their layers several times: Nanbeige 4 (2025) and HRM-Text (DFM 2026)."""

from __future__ import annotations

from typing import Any

from pumice.plugin import GraphBuilder, HParams, Tensor
from pumice.plugin.nn import optional
from pumice.plugin.nn.blocks import linear, output_head
from pumice.plugin.nn.decoder import Decoder

MAX_PASSES = 512  # limit of layers, counted once per pass, as in llama.cpp


class Nanbeige(Decoder):
    """Llama whose layers run ``num_loops`` times, with separate caches per pass."""

    neox = False
    scaled = Decoder.scaled | optional.FEED_FORWARD

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.n_loops = hparams.get_int("num_loops", 1)
        if not 1 <= self.n_loops <= MAX_PASSES // min(self.n_layer, MAX_PASSES):
            raise hparams.wrong(
                "num_loops", f"is {self.n_loops}, it must be at least 1, and at most {MAX_PASSES} layers run"
            )
        self.norm_between = not hparams.get_bool("skip_loop_final_norm", False)

    def build(self, g: GraphBuilder) -> Tensor:
        x = self.embed(g)
        for loop in range(self.n_loops):
            if loop and self.norm_between:
                x = self.norm(g, x, "output_norm")
            for i in range(self.n_layer):
                with g.layer(i) as blk:
                    x = g.layer_output(self.layer(g, x, blk, i))
        return self.head(g, x)


class HRMText(Decoder):
    """Two stacks of layers; the fast one runs several times per run of the slow one.

    ``block_count`` counts the layers of each pass; norms have no weights, and attention has a gate.
    """

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.embedding_scale = hparams.number("embedding_scale", 0.0) or 1.0
        self.n_stack = hparams.positive("hrm.layers_per_stack")
        self.slow_cycles, self.fast_cycles = hparams.positive("hrm.h_cycles"), hparams.positive("hrm.l_cycles")
        if self.n_layer != self.n_stack * self.slow_cycles * (self.fast_cycles + 1):
            raise hparams.wrong(
                "block_count", f"is {self.n_layer}, which differs from the number of layers in all cycles"
            )

    def build(self, g: GraphBuilder) -> Tensor:
        slow = self.embed(g)
        fast: Tensor = g.weight("hrm.z_l_init", (self.n_embd,))
        for _ in range(self.slow_cycles):
            for _ in range(self.fast_cycles):
                fast = self.stack(g, slow + fast, 0)
            slow = self.stack(g, slow + fast, self.n_stack)
        return output_head(g, g.get_rows(slow, g.output_ids))

    def stack(self, g: GraphBuilder, x: Tensor, first: int) -> Tensor:
        for i in range(first, first + self.n_stack):
            with g.layer(i) as blk:
                x = g.layer_output(self.layer(g, x, blk, i))
        return self.norm(g, x, "")

    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        def gated(y: Tensor) -> Tensor:
            return y * g.sigmoid(linear(g, x, blk + "attn_gate", int(y.shape[-1])))

        return super().attention(g, x, blk, i, finish=gated, **options)

    def norm(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        return g.rms_norm(x, None, self.eps)
