"""A.X K2 (SK Telecom 2026): latent attention with an indexer, gates of norms, and gates of attention."""

from __future__ import annotations

from pumice.plugin import GraphBuilder, HParams, Tensor
from pumice.plugin.nn.blocks import attention_gate, linear, width
from pumice.plugin.nn.hyper import Heads
from pumice_architectures.sparse_latent import SparseLatent


class AXK2(SparseLatent):
    """Queries and gates derive from the compressed queries, both before and after their norm."""

    drafts = ""

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

    def finish(self, g: GraphBuilder, x: Tensor, y: Tensor, blk: str, i: int) -> Tensor:
        n_head, k_dim, v_dim = self.head_sizes(i)
        return attention_gate(g, x, blk, Heads(n_head, 1, k_dim, v_dim), g.sigmoid)(y)
