"""Ling 3 and Ring 3 (inclusionAI 2026): Kimi's delta attention with bounded decays, gated MLA, and experts."""

from __future__ import annotations

from pumice.plugin import GraphBuilder, HParams, Tensor
from pumice.plugin.nn import Heads, Rope, read_rope, rope_sections
from pumice.plugin.nn.blocks import Join, attention_gate, linear
from pumice.plugin.nn.experts import late_clamped_swiglu, read_limit
from pumice_architectures.kimi_linear import KimiLinear


class BailingMoE3(KimiLinear):
    drafts = "after norm"
    normalize = None
    compressed = True
    scaled = frozenset()

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.bound = hparams.get_float("kda.gate_lower_bound")
        if not -1e4 < self.bound < 0:
            raise hparams.wrong("kda.gate_lower_bound", f"is {self.bound:g}, it must be below 0")
        if not hparams.get_bool("kda.safe_gate", True):
            raise hparams.wrong("kda.safe_gate", "is false, only bounded decays are supported")

    def draft_norm(self, g: GraphBuilder, name: str) -> str:
        return f"blk.{self.n_layer}.layer_output_norm"

    def latent_rope(self, g: GraphBuilder, n_rot: int) -> Rope | None:
        sections = rope_sections(self.hparams, (0, 0, 0, 0))
        return read_rope(self.hparams, g, n_rot, neox=sections[0] > 0 and sections[1] > 0)

    def finish(self, g: GraphBuilder, x: Tensor, y: Tensor, blk: str, heads: Heads) -> Tensor:
        return attention_gate(g, x, blk, heads, g.sigmoid)(y)

    def projected(self, g: GraphBuilder, x: Tensor, name: str, rank: int, n_out: int) -> Tensor:
        """Project by a single matrix of full rank."""
        return linear(g, x, name + "_a", n_out)

    def log_decay(self, g: GraphBuilder, rate: Tensor, a: Tensor) -> Tensor:
        return g.sigmoid(rate * a) * self.bound

    def join(self, g: GraphBuilder, i: int, block: str) -> Join:
        key = "swiglu_clamp_exp" if block == "exps" else "swiglu_clamp_shexp"
        return late_clamped_swiglu(g, read_limit(self.hparams, key, i, 0.0))

    def shared_width(self, i: int) -> int:
        width = self.hparams.get_int("expert_shared_feed_forward_length", 0)
        return width or max(1, self.hparams.count("expert_shared_count", i, low=0)) * self.experts(i).n_ff
