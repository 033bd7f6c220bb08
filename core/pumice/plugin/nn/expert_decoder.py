"""The base class of decoders with experts. A family defines how experts are chosen, and which are shared."""

from __future__ import annotations

from typing import ClassVar, Literal

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn.blocks import Join, joined_feed_forward
from pumice.plugin.nn.decoder import Decoder
from pumice.plugin.nn.experts import Experts, Width, mixture_of_experts, read_experts, read_gate, shared_expert, swiglu


def has_router(g: GraphBuilder, blk: str) -> bool:
    """Return True if a layer has a router, or experts without one."""
    return any(g.find_weight(f"{blk}{name}.weight") for name in ("ffn_gate_inp", "ffn_down_exps"))


class ExpertDecoder(Decoder):
    """A decoder whose feed-forward blocks are experts, after ``leading_dense_block_count`` dense ones.

    There may also be shared experts, which every token uses (DeepSeekMoE, Dai et al. 2024, arXiv:2401.06066).
    """

    #: The gate that turns logits into weights, as in the operation ``expert_weights``: the default if the file can set
    #: it; empty if the file must set it.
    gate: ClassVar[str] = "softmax"
    gate_of_file: ClassVar[bool] = False
    #: True if the weights of a token's experts are normalized to sum 1; None if the file sets it.
    normalize: ClassVar[bool | None] = True
    expert_width: ClassVar[Width] = ""
    #: Source of the width of shared experts: their number, or a key for it that may be absent ("" for none).
    shared: ClassVar[Literal["", "expert_shared_count", "expert_shared_feed_forward_length"]] = ""

    #: True if layers without a router are dense, whatever the keys say.
    dense_without_router: ClassVar[bool] = False
    #: True if the shared experts have a gate.
    shared_is_gated: ClassVar[bool] = False

    def feed_forward(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        if not has_router(g, blk) if self.dense_without_router else self.is_dense(i):
            return joined_feed_forward(g, x, blk, self.n_ff(i), self.join(g, i, "ffn"))
        y = mixture_of_experts(g, x, blk, self.experts(i), self.join(g, i, "exps"))
        n_ff = self.shared_width(i)
        if not n_ff:
            return y
        join = self.join(g, i, "shexp")
        return y + shared_expert(g, x, blk, n_ff, join, gated=self.shared_is_gated)

    def join(self, g: GraphBuilder, i: int, block: str) -> Join:
        """Return the function that joins gate and up in a ``block`` of layer ``i``: ffn, exps or shexp."""
        return swiglu(g)

    def is_dense(self, i: int) -> bool:
        """Return True if layer ``i`` has a feed-forward block without experts."""
        return i < self.hparams.get_int("leading_dense_block_count", 0)

    def experts(self, i: int) -> Experts:
        """Return the number, width and routing of the experts of layer ``i``."""
        gate = read_gate(self.hparams, self.gate) if self.gate_of_file else self.gate
        return read_experts(self.hparams, i, gate=gate, normalize=self.normalize, width=self.expert_width)

    def shared_width(self, i: int) -> int:
        """Return the total width of the shared experts; 0 without any."""
        if self.shared == "expert_shared_count":
            return self.hparams.count(self.shared, i, low=0) * self.experts(i).n_ff
        return self.hparams.count(self.shared, i, default=0, low=0) if self.shared else 0
