"""SmallThinker (Song et al. 2025, arXiv:2507.20984)."""

from __future__ import annotations

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn.blocks import Join
from pumice.plugin.nn.expert_decoder import ExpertDecoder
from pumice.plugin.nn.experts import mixture_of_experts
from pumice.plugin.nn.hyper import is_sliding, sliding_window
from pumice.plugin.nn.rope import Rope

WINDOW = 4096  # positions, regardless of the file
NO_ROPE_STEP = 4  # in the larger model the first and then every fourth layer has no positions


class SmallThinker(ExpertDecoder):
    """The router reads a layer's input before norm and attention; experts use ReLU."""

    gate, gate_of_file = "", True

    def layer(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        h = x + self.attention(g, self.norm(g, x, blk + "attn_norm"), blk, i)
        normed = self.norm(g, h, blk + "ffn_norm")
        return h + mixture_of_experts(g, normed, blk, self.experts(i), self.join(g, i, "exps"), router_input=x)

    def join(self, g: GraphBuilder, i: int, block: str) -> Join:
        return lambda gate, up: g.relu(gate) * up

    def window(self, i: int) -> int:
        return WINDOW if self.has_windows() and is_sliding(self.hparams, i, period=4, first_global=True) else 0

    def rope(self, g: GraphBuilder, i: int) -> Rope | None:
        return super().rope(g, i) if i % NO_ROPE_STEP or not self.has_windows() else None

    def has_windows(self) -> bool:
        return sliding_window(self.hparams) > 0
