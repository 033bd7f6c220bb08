"""Hunyuan, dense (Tencent 2025), and the text model of HunyuanOCR."""

from __future__ import annotations

from dataclasses import replace

from pumice.plugin import GraphBuilder
from pumice.plugin.nn.decoder import Decoder
from pumice.plugin.nn.rope import Rope, rope_sections


class HunyuanDense(Decoder):
    """Queries and keys are normalized after RoPE, whose base grows with the context (NTK-aware scaling)."""

    qk_norm = "after rope"

    def rope(self, g: GraphBuilder, i: int) -> Rope | None:
        rope = super().rope(g, i)
        if rope is None:
            return None
        width, alpha = self.heads(i).k_dim, self.hparams.number("rope.scaling.alpha", 0.0)
        base = rope.freq_base * alpha ** (width / (width - 2)) if alpha and width > 2 else rope.freq_base
        return replace(rope, freq_base=base, sections=self.sections())

    def sections(self) -> tuple[int, ...]:
        return ()


class HunyuanVL(HunyuanDense):
    def sections(self) -> tuple[int, ...]:
        sections = rope_sections(self.hparams, default=())
        return sections if min(sections[:2], default=0) > 0 else ()
