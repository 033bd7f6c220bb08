"""The base class of decoder-only models. A family defines its layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import ClassVar, Literal, Unpack

from pumice.plugin import N_SEQS, N_TOKENS, Architecture, GraphBuilder, HParams, ModelError, Tensor, TensorSource
from pumice.plugin.nn import blocks, optional, pooling
from pumice.plugin.nn.blocks import Activation, AttentionOptions
from pumice.plugin.nn.hyper import Heads, alibi_slopes, is_sliding, listed_window, read_heads, sliding_window
from pumice.plugin.nn.rope import Rope, read_rope, sliding_rope
from pumice.plugin.unstable import DRAFT, HEAD, MAIN, STREAM

NormNames = tuple[tuple[str, str], tuple[str, str]]
"""Names of the norms before attention and the feed-forward block, and of those after them; empty for none."""

SlidingLayers = Literal["", "all", "listed"] | int
FeedForward = Literal["gated", "fused", "plain"]
ActivationName = Literal["silu", "gelu", "relu", "relu_squared"]


class Decoder(Architecture):
    """Embedding, layers, norm, output head; in a layer attention, then a gated feed-forward block.

    That is Llama (Touvron et al. 2023, arXiv:2302.13971). A family overrides the parts that differ. The norm is
    RMSNorm; see ``LayerNormDecoder``.
    """

    #: True if RoPE rotates the pairs ``(i, i + n_rot/2)`` of a head, False for ``(2i, 2i + 1)``.
    neox: ClassVar[bool] = True
    eps_key: str = "attention.layer_norm_rms_epsilon"
    #: Names of the norms before and after attention and the feed-forward block; empty for none.
    norms_before: tuple[str, str] = ("attn_norm", "ffn_norm")
    norms_after: tuple[str, str] = ("", "")
    #: True if queries and keys of each head are normalized, before or after RoPE.
    qk_norm: Literal["", "before rope", "after rope"] = ""
    #: True if that norm spans all heads of a token.
    qk_norm_is_wide: ClassVar[bool] = False
    #: Activation of the gate of attention's result (``blocks.attention_gate``); empty for none.
    attention_gate: Literal["", "sigmoid", "softplus"] = ""
    #: Largest penalty of distance (``alibi_slopes``); 0 for none.
    max_bias: float = 0.0
    #: Layers with a sliding window: all, those that the file lists, or all but the last of each so many.
    sliding_layers: ClassVar[SlidingLayers] = ""
    #: Layers with RoPE.
    rope_layers: ClassVar[Literal["all", "sliding", "none"]] = "all"
    #: True if RoPE of sliding layers has a width and a base of its own, and if it is not scaled.
    own_sliding_rope: ClassVar[bool] = False
    unscaled_sliding_rope: ClassVar[bool] = False
    #: The feed-forward block: with a gate, with gate and up in one matrix, or without a gate.
    ffn: ClassVar[FeedForward] = "gated"
    activation: ClassVar[ActivationName] = "silu"
    #: Name of a norm of the embeddings; empty for none.
    embedding_norm: ClassVar[str] = ""
    #: Soft cap of the logits if the file has none, 0 for no cap; None if the file's is ignored.
    logit_softcap: ClassVar[float | None] = None
    #: True if heads have attention sinks; None if the file decides, layer by layer.
    sinks: ClassVar[bool | None] = False
    #: Hidden states for layers that draft, which follow the last layer: before or after the last norm; empty for none.
    drafts: str = ""  # or "before norm", or "after norm"
    #: True if the model only drafts, so that ``nextn_predict_layers`` counts all of its layers.
    only_drafts: ClassVar[bool] = False
    #: True if a reranker's scores add up to 1.
    scores_are_probabilities: ClassVar[bool] = False
    #: Matrices with ``.scale`` tensors that multiply their results.
    scaled: ClassVar[frozenset[str]] = optional.ATTENTION | optional.STATE_SPACE | {"eh_proj"}
    #: Optional tensors, such as ``attn_output.bias``, that the graph ignores.
    unused: ClassVar[frozenset[str]] = frozenset()

    #: Factors of the embeddings, of the result of each block, and of the logits.
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    logit_scale: float = 1.0

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.eps = hparams.number(self.eps_key)
        self.causal = hparams.get_bool("attention.causal", True)
        more = 0 if self.only_drafts else hparams.get_int("nextn_predict_layers", 0)
        self.n_drafting = more  # layers that only draft, which come last
        self.n_layer -= self.n_drafting
        if self.n_layer < 1:
            raise ModelError(f"{hparams.architecture}.nextn_predict_layers leaves no layers to run")

    def tensors(self, tensors: Mapping[str, TensorSource]) -> Mapping[str, TensorSource]:
        return optional.applied(tensors, self.scaled_in, self.unused)

    def scaled_in(self, i: int) -> frozenset[str]:
        """Return the matrices of layer ``i`` whose results are scaled; -1 stands for no layer."""
        return self.scaled

    def graphs(self) -> Mapping[str, Callable[[GraphBuilder], Tensor | None]]:
        return {MAIN: self.build, DRAFT: self.draft, HEAD: self.after_pooling}

    def build(self, g: GraphBuilder) -> Tensor | None:
        x = self.layers(g)
        if self.drafts and self.n_drafting:
            g.output(STREAM, self.norm(g, x, "output_norm") if self.drafts == "after norm" else x)
        return self.head(g, x)

    def layers(self, g: GraphBuilder) -> Tensor:
        """Return the residual stream ``[t, n_embd]`` after the last layer."""
        x = self.embed(g)
        for i in range(self.n_layer):
            with g.layer(i) as blk:
                x = g.layer_output(self.layer(g, x, blk, i))
        return x

    def embed(self, g: GraphBuilder) -> Tensor:
        """Return the embeddings of the step's tokens, ``[t, n_embd]``."""
        x = _times(blocks.embedding(g, self.n_embd), self.embedding_scale)
        return self.norm(g, x, self.embedding_norm) if self.embedding_norm else x

    def layer(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        """Return the residual stream ``[t, n_embd]`` after layer ``i``, whose tensors begin with ``blk``."""
        blocks = zip((self.attention, self.feed_forward), *self.norm_names(i), strict=True)
        for block, before, after in blocks:
            h = block(g, self.norm(g, x, blk + before) if before else x, blk, i)
            x = x + _times(self.norm(g, h, blk + after) if after else h, self.residual_scale)
        return x

    def norm_names(self, i: int) -> NormNames:
        """Return the names of the norms of layer ``i``."""
        return self.norms_before, self.norms_after

    def head(self, g: GraphBuilder, x: Tensor) -> Tensor:
        """Return the logits ``[n_outputs, n_vocab]`` of the output rows of ``x [t, n_embd]``."""
        x = self.norm(g, g.get_rows(x, g.output_ids), "output_norm")
        logits = _times(blocks.output_head(g, x), self.logit_scale)
        if self.logit_softcap is None:
            return logits
        return blocks.softcap(g, logits, self.hparams.number("final_logit_softcapping", self.logit_softcap))

    def draft(self, g: GraphBuilder) -> Tensor | None:
        """Multi-token prediction (Gloeckle et al. 2024, arXiv:2404.19737; DeepSeek-V3, arXiv:2412.19437, section 2.2).

        It computes the logits of the next token from a token and the hidden state of the previous position. The output
        ``hidden`` is the input of the next draft. Returns None if the file has no such layer.
        """
        blk = f"blk.{self.n_layer}."
        name = f"{blk}nextn."
        if not (self.drafts and self.n_drafting and g.find_weight(f"{name}eh_proj.weight")):
            return None
        table = f"{name}embed_tokens" if g.find_weight(f"{name}embed_tokens.weight") else "token_embd"
        token = self.norm(g, blocks.embedding(g, self.n_embd, table), f"{name}enorm")
        x = self.layer(g, self.draft_input(g, token, name), blk, self.n_layer)
        x = g.get_rows(x, g.output_ids)
        normed = self.norm(g, self.last_stream(g, x), self.draft_norm(g, name))
        g.output("hidden", normed if self.drafts == "after norm" else x)
        shape = (blocks.n_vocab(g), self.n_embd)
        heads = (
            g.find_weight(f"{prefix}.weight", shape) for prefix in (f"{name}shared_head_head", "output", "token_embd")
        )
        return _times(g.linear(normed, next(head for head in heads if head)), self.logit_scale)

    def draft_input(self, g: GraphBuilder, token: Tensor, name: str) -> Tensor:
        """Return the input of a drafting layer: a normalized ``token [t, n_embd]`` joined with ``hidden``."""
        before = self.norm(g, g.input("hidden", (N_TOKENS, self.n_embd)), f"{name}hnorm")
        return blocks.linear(g, g.concat(token, before), f"{name}eh_proj", self.n_embd)

    def last_stream(self, g: GraphBuilder, x: Tensor) -> Tensor:
        """Return the stream ``[t, n_embd]`` for the logits, if there are several residual streams."""
        return x

    def draft_norm(self, g: GraphBuilder, name: str) -> str:
        """Return the name of the norm before a draft's logits; its tensors begin with ``name``."""
        return f"{name}shared_head_norm" if g.find_weight(f"{name}shared_head_norm.weight") else "output_norm"

    def after_pooling(self, g: GraphBuilder) -> None:
        """Add the parts of embedding models and rerankers that follow pooling."""
        x = g.input("pooled", (N_SEQS, self.n_embd))
        pooling.dense(g, x)
        pooling.classifier(g, x, self.classifier_activation(g), eps=self.eps, softmax=self.scores_are_probabilities)

    def classifier_activation(self, g: GraphBuilder) -> Activation:
        """Return the activation between a reranker's two matrices."""
        return g.tanh

    def norm(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        """Return ``x`` with its last axis normalized; ``name`` is the prefix of the weights, ``blk.3.attn_norm``."""
        return blocks.rms_norm(g, x, name, self.eps)

    def heads(self, i: int) -> Heads:
        """Return the number and size of the heads of layer ``i``."""
        return read_heads(self.hparams, self.n_embd, i)

    def rope(self, g: GraphBuilder, i: int) -> Rope | None:
        """Return the rotary embedding of layer ``i``; None without positions."""
        if self.rope_layers == "none" or (self.rope_layers == "sliding" and not self.window(i)):
            return None
        rope = read_rope(self.hparams, g, self.heads(i).k_dim, neox=self.neox)
        if self.own_sliding_rope and self.window(i):
            rope = sliding_rope(self.hparams, rope, self.heads(i).k_dim)
        if self.unscaled_sliding_rope and self.window(i):
            rope = replace(rope, freq_scale=1.0, ext_factor=0.0, attn_factor=1.0)
        return rope

    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Unpack[AttentionOptions]) -> Tensor:
        """Return the self-attention of a normalized ``x``; options as in ``blocks.self_attention``."""
        defaults: AttentionOptions = {"window": self.window(i), **self.sight()}
        if self.qk_norm:
            norm = partial(blocks.norm_all_heads, norm=self.norm) if self.qk_norm_is_wide else self.norm
            defaults["norm" if self.qk_norm == "before rope" else "late_norm"] = norm
        if self.attention_gate:
            activation: Activation = getattr(g, self.attention_gate)
            defaults["finish"] = blocks.attention_gate(g, x, blk, self.heads(i), activation)
        if self.max_bias:
            defaults["slopes"] = alibi_slopes(self.heads(i).n_head, self.max_bias)
        if self.sinks is not False:
            defaults["sinks"] = blocks.attention_sinks(g, blk, self.heads(i).n_head, may_lack=self.sinks is None)
        return blocks.self_attention(g, x, blk, self.heads(i), self.rope(g, i), **(defaults | options))

    def sight(self) -> AttentionOptions:
        """Return options of attention; bidirectional attention needs no cache."""
        return {} if self.causal else {"causal": False, "cache": False}

    def window(self, i: int) -> int:
        """Return the window of layer ``i`` in positions; 0 for none."""
        if not self.sliding_layers:
            return 0
        if self.sliding_layers == "listed":
            return listed_window(self.hparams, i)
        slides = self.sliding_layers == "all" or is_sliding(self.hparams, i, self.sliding_layers)
        return sliding_window(self.hparams) if slides else 0

    def feed_forward(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        """Return the feed-forward block, or experts, of a normalized ``x``."""
        block = {
            "gated": blocks.gated_feed_forward, "fused": blocks.fused_feed_forward, "plain": blocks.feed_forward
        }[self.ffn]  # fmt: skip
        return block(g, x, blk, self.n_ff(i), getattr(g, self.activation))

    def n_ff(self, i: int) -> int:
        """Return the width of the feed-forward block of layer ``i``."""
        return self.hparams.count("feed_forward_length", i)


def _times(x: Tensor, factor: float) -> Tensor:
    return x if factor == 1.0 else x * factor


class LayerNormDecoder(Decoder):
    """A decoder whose norms are LayerNorm, with or without bias."""

    eps_key = "attention.layer_norm_epsilon"

    def norm(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        return blocks.layer_norm(g, x, name, self.eps)
