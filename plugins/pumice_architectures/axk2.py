"""A.X K2 (SK Telecom 2026): latent attention with an indexer, gates of norms, and gates of attention."""

from __future__ import annotations

from pumice.plugin import GraphBuilder, HParams, Tensor
from pumice.plugin.nn.blocks import linear, width
from pumice_architectures.sparse_latent import SparseLatent


class AXK2(SparseLatent):
    """Queries and gates derive from the compressed queries, both before and after their norm."""

    drafts = ""
    attention_gate = "sigmoid"

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.gate_rank = hparams.positive("norm_gate_rank")

    def norm(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        """Normalize; some norms have a gate, which derives from their results."""
        y = super().norm(g, x, name)
        if not g.find_weight(f"{name}_gate_a.weight"):
            return y
        gate = g.silu(linear(g, y, f"{name}_gate_a", self.gate_rank))
        return y * g.sigmoid(linear(g, gate, f"{name}_gate_b", width(x)))

    def query_input(self, g: GraphBuilder, compressed: Tensor, normed: Tensor) -> Tensor:
        return g.concat(normed, compressed)

    def gate_input(self, x: Tensor, wide: Tensor) -> Tensor:
        return wide
