"""Gemma 4's encoder of sound without a transformer (Google 2026): frames of samples, normalized and projected."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pumice.plugin import N_TOKENS, GraphBuilder, HParams, Tensor
from pumice.plugin.nn import blocks
from pumice.plugin.unstable import AudioEncoder, Samples, SoundPiece

MOST_SAMPLES = 16_000  # of a frame
WINDOW_ROWS = 750  # that are computed at once: 30 seconds


class Gemma4Unified(AudioEncoder):
    """A frame of samples becomes a row; the last one is completed with zeros."""

    around = ("<|audio>", "<audio|>")

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.frame = hparams.positive("embedding_length")
        self.eps = hparams.number("attention.layer_norm_epsilon")
        if self.frame > MOST_SAMPLES:
            raise hparams.wrong("embedding_length", f"is {self.frame}, expected at most {MOST_SAMPLES} samples")
        self.n_rows = WINDOW_ROWS

    def prepare(self, samples: Samples) -> Iterator[str | SoundPiece]:
        yield self.around[0]
        window = self.frame * WINDOW_ROWS
        for start in range(0, len(samples), window):
            part = samples[start : start + window]
            rows = np.pad(part, (0, -len(part) % self.frame)).reshape(-1, self.frame)
            yield SoundPiece({"patches": np.ascontiguousarray(rows, np.float32)}, len(rows))
        yield self.around[1]

    def count_rows(self, n_samples: int) -> int:
        return -(-n_samples // self.frame)

    def build(self, g: GraphBuilder) -> Tensor:
        x = g.rms_norm(g.input("patches", (N_TOKENS, self.frame)), None, self.eps)
        return blocks.linear(g, x, "mm.a.input_projection", self.width)
