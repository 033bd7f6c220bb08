"""DFlash: a few layers that draft a block of tokens at once, beside what they keep of the target's layers."""

from __future__ import annotations

from typing import Any

import numpy as np

from pumice.plugin import N_TOKENS, GraphBuilder, HParams, ModelError, Tensor
from pumice.plugin.nn.blocks import attend, gated_feed_forward, linear_then_scale, qkv
from pumice.plugin.nn.hyper import sliding_window
from pumice.plugin.nn.rope import Rope
from pumice_architectures.drafts import Draft

OTHER_KINDS = ("markov_w1.weight", "selector_hidden.weight", "hc_head_fn.weight")  # tensors of DSpark and DFlash 2


class DFlash(Draft):
    """``features`` fills the caches; the main graph takes a block, its last token and masks, which see each other."""

    heads_of_logits = ("output.weight", "token_embd.weight")

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.causal = hparams.get_bool("attention.causal", False)
        layers = hparams.metadata.get(f"{hparams.architecture}.target_layers", ())
        self.n_features = np.size(layers) if np.ndim(layers) == 1 else 0
        if not self.n_features:
            raise hparams.wrong("target_layers", f"is {layers!r}, expected a list of layers")
        self.embedding_scale = hparams.number("embedding_scale", 1.0) or 1.0
        self.value_scale = hparams.number("attention.value_scale", 1.0) or 1.0
        activation = hparams.get_str("hidden_activation", "silu")
        if activation not in ("silu", "gelu", "gelu_pytorch_tanh"):
            raise hparams.wrong("hidden_activation", f"is {activation!r}, known are silu and gelu")
        self.is_gelu = activation != "silu"

    def features(self, g: GraphBuilder) -> None:
        """``features [t, n_features * n_embd]``: each layer keeps a key and a value of them."""
        for name in OTHER_KINDS:
            if g.find_weight(name):
                raise ModelError(f"the draft has {name}: of DFlash only the plain kind runs here")
        x: Tensor = g.input("features", (N_TOKENS, self.n_features * self.n_embd))
        x = self.norm(g, linear_then_scale(g, x, "fc", self.n_embd, True), "enc.output_norm")
        g.output("hidden", g.get_rows(x, g.output_ids))
        for i in range(self.n_layer):
            with g.layer(i) as blk:
                g.kv_store(*self.keys_and_values(g, x, blk, i), window=self.window(i))

    def embed(self, g: GraphBuilder) -> Tensor:
        x = self.token(g)
        return x if self.embedding_scale == 1.0 else x * self.embedding_scale

    def layer(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        y = self.attention(g, self.norm(g, x, blk + "attn_norm"), blk, i)
        x = x + self.normed(g, y, f"{blk}post_attention_norm")
        activation = g.gelu if self.is_gelu else g.silu
        y = gated_feed_forward(g, self.norm(g, x, blk + "ffn_norm"), blk, self.n_ff(i), activation, scaled=True)
        x = x + self.normed(g, y, f"{blk}post_ffw_norm")
        scale = g.find_weight(f"{blk}layer_output_scale.weight", (1,))
        return x if scale is None else x * scale

    def normed(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        """Normalized, if the file has a weight for it."""
        return self.norm(g, x, name) if g.find_weight(f"{name}.weight") else x

    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        heads = self.heads(i)
        q = self.turned(g, self.norm(g, qkv(g, x, blk, heads, ["attn_q"])[0], blk + "attn_q_norm"), i)
        k, v = self.keys_and_values(g, x, blk, i)
        sinks = g.find_weight(f"{blk}attn_sinks.weight", (heads.n_head,))
        seen: dict[str, Any] = {"window": self.window(i), "causal": self.causal, "cache": g.cache(i)}
        scale = self.hparams.number("attention.scale", 0.0)
        y = attend(g, blk, q, k, v, self.n_embd, scale=scale, sinks=sinks, **seen)
        return y if self.value_scale == 1.0 else y * self.value_scale

    def keys_and_values(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> tuple[Tensor, Tensor]:
        """Keys normalized and turned, and values; without a matrix for them those are the keys, as normalized."""
        wanted = ["attn_k", "attn_v"] if g.find_weight(f"{blk}attn_v.weight") else ["attn_k"]
        k, *values = qkv(g, x, blk, self.heads(i), wanted)
        v = values[0] if values else g.rms_norm(k, None, self.eps)
        return self.turned(g, self.norm(g, k, blk + "attn_k_norm"), i), v

    def turned(self, g: GraphBuilder, x: Tensor, i: int) -> Tensor:
        rope: Rope | None = self.rope(g, i)
        return rope(g, x) if rope else x

    def window(self, i: int) -> int:
        """What is not causal counts a window to both sides; a block is never longer than it."""
        window = sliding_window(self.hparams)
        if not window or not self.hparams.per_layer("attention.sliding_window_pattern", i + 1)[i]:
            return 0
        if window < max(2, self.hparams.get_int("block_size", 0)):
            raise self.hparams.wrong("attention.sliding_window", f"is {window}, less than a block")
        return window if self.causal else 2 * (window - 1)

    def head(self, g: GraphBuilder, x: Tensor) -> Tensor:
        return self.logits(g, self.norm(g, g.get_rows(x, g.output_ids), "output_norm"))
