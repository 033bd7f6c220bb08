"""DFlash: a few layers that draft a block of tokens at once, from cached features of the target's layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pumice.plugin import Architecture, GraphBuilder, HParams, Tensor, TensorSource
from pumice.plugin.nn import optional
from pumice.plugin.nn.blocks import Activation, attend, gated_feed_forward, qkv
from pumice.plugin.nn.blocks import softcap as capped
from pumice.plugin.nn.hyper import slides, sliding_window
from pumice.plugin.nn.rope import Rope
from pumice_architectures.block_draft import BlockDraft
from pumice_architectures.deepseek4 import DeepSeek4Layers
from pumice_architectures.dflash2 import has_selector, read_convolutions


class DFlash(Architecture):
    """A draft with the layers of Llama or of DeepSeek V4."""

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        streams = hparams.get_int("hyper_connection.count", 0)
        self.draft: BlockDraft = DeepSeekDraft(hparams) if streams else LlamaDraft(hparams)
        self.target_layers = self.draft.target_layers

    def tensors(self, tensors: Mapping[str, TensorSource]) -> Mapping[str, TensorSource]:
        return self.draft.tensors(tensors)

    def graphs(self) -> Mapping[str, Callable[[GraphBuilder], Tensor | None]]:
        return self.draft.graphs()

    def build(self, g: GraphBuilder) -> Tensor | None:
        return self.draft.build(g)


class LlamaDraft(BlockDraft):
    scaled = BlockDraft.scaled | optional.ATTENTION | optional.FEED_FORWARD

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.embedding_scale = hparams.number("embedding_scale", 1.0) or 1.0
        self.value_scale = hparams.number("attention.value_scale", 1.0) or 1.0
        activation = hparams.get_str("hidden_activation", "silu")
        if activation not in ("silu", "gelu", "gelu_pytorch_tanh"):
            raise hparams.wrong("hidden_activation", f"is {activation!r}, expected silu or gelu")
        self.is_gelu = activation != "silu"

    def embed(self, g: GraphBuilder) -> Tensor:
        x = self.token(g)
        return x if self.embedding_scale == 1.0 else x * self.embedding_scale

    def layer(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        def attention(h: Tensor) -> Tensor:
            return self.attention(g, h, blk, i)

        def feed_forward(h: Tensor) -> Tensor:
            return gated_feed_forward(g, h, blk, self.n_ff(i), g.gelu if self.is_gelu else g.silu)

        x = x + self.convolved(g, x, attention, blk, "attn", "post_attention_norm")
        x = x + self.convolved(g, x, feed_forward, blk, "ffn", "post_ffw_norm")
        scale = g.find_weight(f"{blk}layer_output_scale.weight", (1,))
        return x if scale is None else x * scale

    def convolved(self, g: GraphBuilder, x: Tensor, block: Activation, blk: str, name: str, after: str) -> Tensor:
        """Apply a block to a normalized ``x``, with the file's optional convolutions around it and norm after it."""
        h = self.norm(g, x, f"{blk}{name}_norm")
        if has_selector(g, self.hparams):
            y = read_convolutions(self.hparams, self.n_embd).around(g, h, block, f"{blk}{name}_conv")
        else:
            y = block(h)
        return self.norm(g, y, f"{blk}{after}") if g.find_weight(f"{blk}{after}.weight") else y

    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        q = self.turned(g, self.norm(g, qkv(g, x, blk, self.heads(i), ["attn_q"])[0], blk + "attn_q_norm"), i)
        k, v = self.keys_and_values(g, x, blk, i)
        scale = self.hparams.number("attention.scale", 0.0)
        y = attend(g, blk, q, k, v, self.n_embd, scale=scale, **self.seen(g, blk, i))
        return y if self.value_scale == 1.0 else y * self.value_scale

    def keys_and_values(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> tuple[Tensor, Tensor]:
        """Return normalized, rotated keys, and values; without a value matrix they are the normalized keys."""
        names = ["attn_k", "attn_v"] if g.find_weight(f"{blk}attn_v.weight") else ["attn_k"]
        k, *values = qkv(g, x, blk, self.heads(i), names)
        v = values[0] if values else g.rms_norm(k, None, self.eps)
        return self.turned(g, self.norm(g, k, blk + "attn_k_norm"), i), v

    def turned(self, g: GraphBuilder, x: Tensor, i: int) -> Tensor:
        rope: Rope | None = self.rope(g, i)
        return rope(g, x) if rope else x

    def is_sliding(self, i: int) -> bool:
        return sliding_window(self.hparams) > 0 and slides(self.hparams, i)

    def finished(self, g: GraphBuilder, logits: Tensor) -> Tensor:
        """Match the logits' scale to the target's, as the selector requires."""
        if not has_selector(g, self.hparams):
            return logits
        logits = logits * (self.hparams.number("logit_scale", 0.0) or 1.0)
        return capped(g, logits, self.hparams.number("final_logit_softcapping", 0.0))


class DeepSeekDraft(BlockDraft, DeepSeek4Layers):
    is_sure_before_norm = True

    def embed(self, g: GraphBuilder) -> Tensor:
        return self.streams.start(g, self.token(g))

    def keys_and_values(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> tuple[Tensor, None]:
        return self.key(g, x, blk, i), None

    def is_sliding(self, i: int) -> bool:
        return sliding_window(self.hparams, None) > 0

    def last_stream(self, g: GraphBuilder, x: Tensor) -> Tensor:
        return self.streams.end(g, x)
