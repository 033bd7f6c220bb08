"""GLM-4.1V to 4.6V (Zhipu AI 2025, arXiv:2507.01006) and GLM-OCR: a convolution over squares, then a gated block."""

from __future__ import annotations

from pumice.plugin import GraphBuilder, HParams, Tensor
from pumice.plugin.nn import blocks
from pumice_architectures.vision.any_size import Inputs
from pumice_architectures.vision.interpolation import table_inputs, table_positions
from pumice_architectures.vision.qwen import Qwen2VL
from pumice_architectures.vision.vit import Grid, folded, gelu_erf


class GLM4V(Qwen2VL):
    """Rotary positions, and in larger models a table of learned ones, too."""

    least_rows, usual_rows, most_rows = 8, 4096, 7500
    around = ("<|begin_of_image|>", "<|end_of_image|>")

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.side = hparams.positive("image_size") // self.patch_size  # of the table of positions, in patches
        if not 0 < self.side <= 256:
            raise hparams.wrong("image_size", f"has {self.side} patches a side, expected 1 to 256")

    def fitted(self, height: int, width: int) -> tuple[int, int]:
        if min(height, width) < self.factor:
            scale = max(self.factor / height, self.factor / width)
            height, width = int(height * scale), int(width * scale)
        return super().fitted(height, width)

    def more_inputs(self, grid: Grid) -> Inputs:
        return table_inputs(self.side, grid, "cubic") if self._has_table else {}

    def build(self, g: GraphBuilder) -> Tensor:
        x = self.patch_embeddings(g)
        if g.find_weight("v.norm_embd.weight") is not None:
            x = self.norm(g, x, "v.norm_embd")
        table = g.find_weight("v.position_embd.weight", (self.side**2, self.n_embd))
        self._has_table = table is not None
        if table is not None:
            x = x + table_positions(g, table, "cubic")
        x = self.norm(g, self.blocks(g, x), "v.post_ln")
        x = folded(g, x, "mm.patch_merger", self.width, self.merge, self.n_rows)
        x = gelu_erf(g, blocks.layer_norm(g, blocks.linear(g, x, "mm.model.fc", self.width), "mm.post_norm", 1e-5))
        n_hidden = int(g.weight("mm.gate.weight").shape[0])
        gate, up = (blocks.linear(g, x, f"mm.{name}", n_hidden) for name in ("gate", "up"))
        return blocks.linear(g, g.silu(gate) * up, "mm.down", self.width)
