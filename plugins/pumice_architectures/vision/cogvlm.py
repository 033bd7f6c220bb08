"""CogVLM (Wang et al. 2023, arXiv:2311.03079): EVA-02-CLIP-E, whose norms follow its blocks, between two rows."""

from __future__ import annotations

import numpy as np

from pumice.plugin import GraphBuilder, HParams, Tensor
from pumice.plugin.nn import blocks
from pumice.plugin.unstable import ImagePiece, JoinedPieces
from pumice_architectures.vision.mobilevlm import between
from pumice_architectures.vision.pixels import Pixels, check_ratio, patches, resize
from pumice_architectures.vision.vit import ViT, class_inputs, corners, folded

EPSILON = 1e-5  # of the projector's norm
MERGED = 2  # patches a side of a square that the convolution of CogVLM 2 joins


class CogVLM(ViT):
    """The whole image as one square. Its patches have one position in the language model, that of the first one.

    CogVLM 2 joins squares of four patches. A row has a last value, which is 1 for rows that the language model's visual
    experts read: all but the last one.
    """

    known_activation = "gelu_erf"

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.n_patches = self.side**2
        self.n_rows = self.n_patches + 1
        self.n_values = self.width
        self.width += 1
        self._merges = False

    def prepare(self, pixels: Pixels) -> list[JoinedPieces]:
        check_ratio(pixels)
        rows = patches(
            resize(pixels, self.image_size, self.image_size, "bicubic"), self.patch_size, self.mean, self.std
        )
        n = self._n_results
        ids, kinds = np.zeros(n + 2, np.int32), np.zeros(n + 2, np.int32)
        ids[1:-1] = np.arange(n) + (not self._merges)  # all but the class token's
        kinds[0], kinds[-1] = 1, 2
        inputs = class_inputs(rows)
        inputs = {**inputs, "class_kinds": inputs["kinds"], "kinds": kinds, "line_ids": ids}
        if self._merges:
            inputs |= {name: ids + 1 for name, ids in corners((self.side, self.side), MERGED).items()}
        order = np.arange(n + 2, dtype=np.int32)
        return [JoinedPieces([ImagePiece(inputs)], order, (1, 1), (0, *[1] * n, 2))]

    @property
    def _n_results(self) -> int:
        """The rows of an image without the first and the last one."""
        return self.n_patches // MERGED**2 if self._merges else self.n_patches

    def build(self, g: GraphBuilder) -> Tensor:
        table = g.weight("v.position_embd.weight", (self.n_rows, self.n_embd))
        x = self.blocks(
            g, self.with_class(g, self.patch_embeddings(g), "class_kinds") + g.embedding(table, g.positions)
        )
        x, n = self._merged(g, x), self.n_values
        x = g.gelu_erf(blocks.layer_norm(g, blocks.linear(g, x, "mm.model.fc", n), "mm.post_fc_norm", EPSILON))
        x = g.silu(blocks.linear(g, x, "mm.gate")) * blocks.linear(g, x, "mm.up")
        x = between(g, blocks.linear(g, x, "mm.down", n), self._n_results + 2, "v.boi", "v.eoi")
        visual = g.constant("visual", np.array([[1.0], [1.0], [0.0]], np.float32))
        return g.concat(x, g.embedding(visual, g.input("kinds", (str(x.shape[0]),), "i32")))

    def _merged(self, g: GraphBuilder, x: Tensor) -> Tensor:
        """Return a row for each square of patches, if the file has the convolution that joins them."""
        kernel = g.find_weight("mm.patch_merger.weight")
        self._merges = kernel is not None
        if kernel is None:
            return x
        if self.side % MERGED:
            raise self.hparams.wrong("image_size", f"has {self.side} patches a side, expected an even number")
        return folded(g, x, "mm.patch_merger", MERGED, self.n_rows)

    def blocks(self, g: GraphBuilder, x: Tensor) -> Tensor:
        for i in range(self.n_layer):
            with g.layer(i):
                blk = f"v.blk.{i}."
                x = x + self.norm(g, self._attention(g, x, i), f"{blk}ln1")
                x = x + self.norm(g, self.feed_forward(g, x, blk), f"{blk}ln2")
        return x
