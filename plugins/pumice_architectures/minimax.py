"""MiniMax M2 (2025) and M3 (2026)."""

from __future__ import annotations

from pumice.plugin import GraphBuilder, HParams, ModelError, Tensor
from pumice.plugin.nn.blocks import Join
from pumice.plugin.nn.expert_decoder import ExpertDecoder
from pumice.plugin.nn.experts import gpt_oss_swiglu


class MiniMaxM2(ExpertDecoder):
    """Queries and keys are normalized over all heads together; experts are chosen with a bias."""

    qk_norm = "before rope"
    qk_norm_is_wide = True
    gate, gate_of_file = "", True
    expert_width = "feed_forward_length"


class MiniMaxM3(ExpertDecoder):
    """Layers with experts attend to the blocks of positions that an indexer ranks highest.

    Where the context has no more blocks than these, that is all of them, and the indexer is not asked.
    """

    qk_norm = "before rope"
    gate, gate_of_file = "", True
    normalize = None
    shared = "expert_shared_count"

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        blocks, size = (hparams.positive(f"attention.indexer.{key}") for key in ("top_k", "block_size"))
        self.n_positions = blocks * size

    def build(self, g: GraphBuilder) -> Tensor | None:
        if g.n_ctx > self.n_positions:
            raise ModelError(
                f"minimax-m3 attends to chosen blocks beyond a context of {self.n_positions}, which is not supported: "
                f"use n_ctx={self.n_positions} or less"
            )
        return super().build(g)

    def join(self, g: GraphBuilder, i: int, block: str) -> Join:
        return gpt_oss_swiglu(g)
