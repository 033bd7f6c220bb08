"""PaddleOCR-VL (Baidu 2025, arXiv:2510.14528) and dots.ocr (Xiaohongshu 2025), which read documents; dots3 note."""

from __future__ import annotations

import math

from pumice.plugin import GraphBuilder, HParams, ModelError, Tensor
from pumice.plugin.nn import blocks
from pumice.plugin.nn.experts import MOST_EXPERTS, Experts, choose_by_logits, run_experts
from pumice_architectures.vision.any_size import Inputs
from pumice_architectures.vision.interpolation import table_inputs, table_positions
from pumice_architectures.vision.qwen import Qwen2VL
from pumice_architectures.vision.vit import Grid, merged


class PaddleOCR(Qwen2VL):
    """SigLIP with a table of positions, whose size is that of the tensor, and rotary ones."""

    sees_videos = False
    least_rows, usual_rows, most_rows = 144, 2304, 8192
    around = ("<|IMAGE_START|>", "<|IMAGE_END|>")

    def fitted(self, height: int, width: int) -> tuple[int, int]:
        if height < self.factor:
            height, width = self.factor, round(width * self.factor / height)
        if width < self.factor:
            height, width = round(height * self.factor / width), self.factor
        return super().fitted(height, width)

    def more_inputs(self, grid: Grid) -> Inputs:
        return table_inputs(self.side, grid, "linear")

    def build(self, g: GraphBuilder) -> Tensor:
        table = g.weight("v.position_embd.weight")
        self.side = math.isqrt(int(table.shape[0]))
        if len(table.shape) != 2 or self.side**2 != table.shape[0] or table.shape[1] != self.n_embd:
            raise ModelError(
                f"tensor v.position_embd.weight has shape {list(table.shape)}, expected a square's patches"
            )
        x = self.blocks(g, self.patch_embeddings(g) + table_positions(g, table, "linear"))
        x = blocks.layer_norm(g, self.norm(g, x, "v.post_ln"), "mm.input_norm", 1e-5)
        return self.perceptron(g, merged(g, x, self.merge, self.n_rows), "mm.1", "mm.2")


class DotsOCR(Qwen2VL):
    """A norm after the patches, and one for each patch before squares are merged."""

    sees_videos = False
    merge_key = "projector.scale_factor"
    least_rows, most_rows = 4, 14400
    around = ("<|img|>", "<|endofimg|>")
    has_axes = False

    def build(self, g: GraphBuilder) -> Tensor:
        x = self.blocks(g, self.norm(g, self.patch_embeddings(g), "v.pre_ln"))
        x = blocks.layer_norm(g, self.norm(g, x, "mm.post_norm"), "mm.input_norm", 1e-6)
        return self.perceptron(g, merged(g, x, self.merge, self.n_rows), "mm.0", "mm.2")


class Dots3Note(DotsOCR):
    """dots3 note (Xiaohongshu 2026): norms of queries and keys, and experts in place of the later feed-forwards."""

    merge_key = "spatial_merge_size"
    differing_tensors = ("ffn_gate_exps", "exp_probs_b")

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.n_expert_used = hparams.positive("expert_used_count")

    def feed_forward(self, g: GraphBuilder, x: Tensor, blk: str) -> Tensor:
        gates = g.find_weight(f"{blk}ffn_gate_exps.weight")
        if gates is None:
            return super().feed_forward(g, x, blk)
        if len(gates.shape) != 3 or not 1 <= (n_expert := int(gates.shape[0])) <= MOST_EXPERTS:
            raise ModelError(
                f"tensor {gates.name} has shape {list(gates.shape)}, expected matrices of 1 to {MOST_EXPERTS} experts"
            )
        experts = Experts(n_expert, min(self.n_expert_used, n_expert), int(gates.shape[1]), gate="sigmoid")
        bias = g.find_weight(f"{blk}exp_probs_b.weight", (n_expert,))
        logits = blocks.linear(g, x, f"{blk}ffn_gate_inp", n_expert)
        return run_experts(g, x, blk, experts, *choose_by_logits(g, logits, bias, experts))
