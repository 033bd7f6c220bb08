"""Baichuan 1 and 2 (Yang et al. 2023, arXiv:2309.10305)."""

from __future__ import annotations

from typing import Any

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn.decoder import Decoder
from pumice.plugin.nn.hyper import alibi_slopes
from pumice.plugin.nn.rope import Rope

N_LAYER_7B, N_LAYER_13B = 32, 40  # number of layers; files indicate the kind of positions in no other way
MAX_BIAS = 8.0


class Baichuan(Decoder):
    neox = False

    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        slopes = alibi_slopes(self.heads(i).n_head, MAX_BIAS) if self.n_layer == N_LAYER_13B else ()
        return super().attention(g, x, blk, i, slopes=slopes, **options)

    def rope(self, g: GraphBuilder, i: int) -> Rope | None:
        return super().rope(g, i) if self.n_layer == N_LAYER_7B else None
