"""Hunyuan, dense (Tencent 2025), and the text model of HunyuanOCR."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pumice.plugin import GraphBuilder, HParams
from pumice.plugin.nn.decoder import Decoder
from pumice.plugin.nn.rope import MOST_PAIRS, Rope, rope_sections, rotated
from pumice.plugin.unstable import MediaRules


class HunyuanDense(Decoder):
    """Queries and keys are normalized after RoPE, whose base grows with the context (NTK-aware scaling)."""

    qk_norm = "after rope"

    def rope(self, g: GraphBuilder, i: int) -> Rope | None:
        rope = super().rope(g, i)
        if rope is None:
            return None
        width, alpha = self.heads(i).k_dim, self.hparams.number("rope.scaling.alpha", 0.0)
        base = rope.freq_base * alpha ** (width / (width - 2)) if alpha and width > 2 else rope.freq_base
        return replace(rope, freq_base=base)


class HunyuanVL(HunyuanDense):
    """Images have a place in time, a column, a row and a number (XD-RoPE); text has its position on all four axes."""

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        sections = rope_sections(hparams, default=())
        if min(sections[:2], default=0) > 0:
            n_pairs = rotated(hparams, self.heads(0).k_dim) // 2
            ends = np.cumsum(sections)
            pairs = np.arange(n_pairs if 0 < n_pairs <= MOST_PAIRS else 0) % ends[-1]
            axes = np.array([0, 2, 1, 3])[np.searchsorted(ends, pairs, side="right")]
            self.media_rules = MediaRules(tuple(axes.tolist()), own_grid=True)
