"""Nemotron Nano VL v2 (NVIDIA 2025), whose encoder is RADIO 2.5 (Heinrich et al. 2024, arXiv:2412.07679)."""

from __future__ import annotations

import math

import numpy as np

from pumice.plugin import N_TOKENS, GraphBuilder, ModelError, Tensor, fixed
from pumice.plugin.nn import blocks
from pumice.plugin.unstable import ImagePiece
from pumice_architectures.vision.internvl import InternVL
from pumice_architectures.vision.pixels import Pixels, patches
from pumice_architectures.vision.vit import corners, merged

MOST_REGISTERS = 64


class NemotronV2VL(InternVL):
    """Rows of registers stand before the patches, and a perceptron of squared ReLU follows."""

    sees_videos = False
    known_activation = "gelu_erf"

    def _inputs(self, tile: Pixels) -> ImagePiece:
        rows = patches(tile, self.patch_size, self.mean, self.std)
        n = self.n_registers
        kinds = np.concatenate([np.arange(1, n + 1, dtype=np.int32), np.zeros(len(rows), np.int32)])
        where = np.concatenate([np.zeros(n, np.int32), np.arange(1, len(rows) + 1, dtype=np.int32)])
        squares = {name: ids + np.int32(n) for name, ids in corners((self.side, self.side), self.merge).items()}
        padded = np.concatenate([np.zeros((n, rows.shape[1]), np.float32), rows])
        return ImagePiece({"patches": padded, "kinds": kinds, "where": where, **squares})

    def build(self, g: GraphBuilder) -> Tensor:
        registers, n = g.weight("v.class_embd"), self.n_embd
        shape = fixed(registers.shape)
        self.n_registers = math.prod(shape) // n
        if shape[-1] != n or not 0 < self.n_registers <= MOST_REGISTERS:
            raise ModelError(f"tensor v.class_embd has shape {list(shape)}, expected registers of {n} values")
        self.n_rows = self.side**2 + self.n_registers
        rows = self.n_registers + 1
        table = g.derived(
            "v.class_embd.rows", (rows, n), lambda w: np.pad(w.reshape(-1, n), ((1, 0), (0, 0))), registers
        )
        places = g.derived(
            "v.position_embd.rows",
            (self.side**2 + 1, n),
            lambda w: np.pad(w.reshape(-1, n), ((1, 0), (0, 0))),
            g.weight("v.position_embd.weight"),
        )
        x = self.patch_embeddings(g) + g.embedding(table, g.input("kinds", (N_TOKENS,), "i32"))
        x = self.blocks(g, x + g.embedding(places, g.input("where", (N_TOKENS,), "i32")))
        x = blocks.rms_norm(g, merged(g, x, self.merge, self.n_rows), "mm.model.mlp.0", 1e-6)
        x = g.relu_squared(blocks.linear(g, x, "mm.model.mlp.1"))
        return blocks.linear(g, x, "mm.model.mlp.3", self.width)
