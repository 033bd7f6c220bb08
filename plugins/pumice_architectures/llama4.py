"""Llama 4 (Meta 2025)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pumice.plugin import GraphBuilder, HParams, Tensor
from pumice.plugin.nn.blocks import temperature
from pumice.plugin.nn.expert_decoder import ExpertDecoder
from pumice.plugin.nn.experts import Experts
from pumice.plugin.nn.hyper import is_sliding, sliding_window
from pumice.plugin.nn.rope import Rope

CHUNK = 8192  # positions per chunk of attention, and per step of the temperature
TEMPERATURE = 0.1
NO_ROPE_STEP = 4  # every fourth layer has no positions


class Llama4(ExpertDecoder):
    """Chunked attention in layers with positions, where Scout normalizes queries and keys; a temperature in the others.

    Experts are selected by logits, and read the input times the sigmoid of the logit.
    """

    neox = False
    gate = "sigmoid"
    normalize = False
    n_expert_maverick = 128  # only this size does not normalize queries and keys

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.is_chunked = sliding_window(hparams, CHUNK) > 0
        self.step = hparams.get_int("interleave_moe_layer_step")

    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        options["chunk"] = CHUNK if self.is_chunked and is_sliding(self.hparams, i, period=4) else 0
        if self.rope(g, i) is None:
            options["temperature"] = temperature(g, TEMPERATURE, CHUNK, offset=1) if self.is_chunked else None
        elif self.experts(i).n_expert != self.n_expert_maverick:
            options["late_norm"] = lambda g, x, name: g.rms_norm(x, None, self.eps)
        return super().attention(g, x, blk, i, **options)

    def rope(self, g: GraphBuilder, i: int) -> Rope | None:
        step = NO_ROPE_STEP if self.is_chunked else self.n_layer
        return super().rope(g, i) if (i + 1) % step else None

    def is_dense(self, i: int) -> bool:
        return self.step < 1 or (i + 1) % self.step != 0

    def experts(self, i: int) -> Experts:
        return replace(super().experts(i), weighs_inputs=True)

    def shared_width(self, i: int) -> int:
        return self.experts(i).n_ff
