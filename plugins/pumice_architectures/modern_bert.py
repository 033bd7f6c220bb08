"""Encoders with modern decoder blocks: ModernBERT, NeoBERT, EuroBERT."""

from __future__ import annotations

from dataclasses import replace

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn.blocks import Activation, fused_feed_forward, linear, output_head
from pumice.plugin.nn.decoder import LayerNormDecoder
from pumice.plugin.nn.encoder import Encoder, LayerNormEncoder
from pumice.plugin.nn.hyper import is_sliding, sliding_window
from pumice.plugin.nn.rope import Rope, frequency_base

GATES = {"gelu": "gelu", "geglu": "gelu", "silu": "silu", "swish": "silu", "swiglu": "silu", "reglu": "relu"}
"""Operation for each value of a file's ``hidden_activation``."""


class ModernBert(LayerNormEncoder):
    """ModernBERT (Warner et al. 2024, arXiv:2412.13663): centred sliding windows in two of three layers."""

    period = 3
    embedding_norm = "token_embd_norm"

    def norm(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        """Apply a norm; the first layer has none before its attention, since embeddings are normalized."""
        if name == "blk.0.attn_norm" and not g.find_weight(f"{name}.weight"):
            return x
        return super().norm(g, x, name)

    def window(self, i: int) -> int:
        sliding = is_sliding(self.hparams, i, self.period, first_global=True)
        return sliding_window(self.hparams) if sliding else 0

    def rope(self, g: GraphBuilder, i: int) -> Rope | None:
        rope = super().rope(g, i)
        if rope is None or not self.window(i):
            return rope
        return replace(rope, freq_base=frequency_base(self.hparams, "rope.freq_base_swa"), freq_scale=1.0)

    def feed_forward(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        key = "hidden_activation"
        name = self.hparams.get_str(key, "gelu")
        if name not in GATES:
            raise self.hparams.wrong(key, f"is {name!r}, expected one of {', '.join(GATES)}")
        return fused_feed_forward(g, x, blk, self.n_ff(i), getattr(g, GATES[name]))

    def classifier_activation(self, g: GraphBuilder) -> Activation:
        return g.gelu


class NeoBert(Encoder):
    """NeoBERT (Le Breton et al. 2025, arXiv:2502.19587)."""

    neox = False
    final_norm = "enc.output_norm"
    ffn = "fused"


class EuroBert(Encoder):
    """EuroBERT (Boizard et al. 2025, arXiv:2503.05500): Llama's layers."""


class ModernBertDecoder(LayerNormDecoder):
    """ModernBERT as a causal decoder (Ettin, Weller et al. 2025, arXiv:2507.11412)."""

    ffn, activation = "fused", "gelu"
    embedding_norm = "token_embd_norm"
    sliding_layers = "listed"
    own_sliding_rope = unscaled_sliding_rope = True

    def norm(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        """Apply a norm; the first layer has none before its attention."""
        return x if name == "blk.0.attn_norm" else super().norm(g, x, name)

    def head(self, g: GraphBuilder, x: Tensor) -> Tensor:
        x = self.norm(g, g.get_rows(x, g.output_ids), "output_norm")
        x = self.norm(g, g.gelu(linear(g, x, "output_dense", self.n_embd)), "output_dense_norm")
        return output_head(g, x)
