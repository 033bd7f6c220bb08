"""What all decoder-only models have in common. A family says what one layer does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, Literal

from pumice.plugin import (
    DRAFT,
    HEAD,
    MAIN,
    N_SEQS,
    N_TOKENS,
    Architecture,
    GraphBuilder,
    HParams,
    ModelError,
    Tensor,
    TensorSource,
)
from pumice.plugin.nn import blocks, optional, pooling
from pumice.plugin.nn.blocks import Activation
from pumice.plugin.nn.hyper import Heads, read_heads
from pumice.plugin.nn.rope import Rope, read_rope


class Decoder(Architecture):
    """Embedding, layers, norm, output head; in a layer attention, then a gated feed-forward block.

    That is Llama (Touvron et al. 2023, arXiv:2302.13971). A family overrides what it does differently. The norm is
    RMSNorm; see ``LayerNormDecoder``.
    """

    #: Whether RoPE turns the pairs ``(i, i + n_rot/2)`` of a head, or ``(2i, 2i + 1)``.
    neox: ClassVar[bool] = True
    eps_key: str = "attention.layer_norm_rms_epsilon"
    #: The norms before attention and before the feed-forward block, and those after each; empty where there is none.
    norms_before: tuple[str, str] = ("attn_norm", "ffn_norm")
    norms_after: tuple[str, str] = ("", "")
    #: Whether the queries and keys of each head are normalized: before RoPE turns them, or after.
    qk_norm: Literal["", "before rope", "after rope"] = ""
    #: Whether that norm is one over all heads of a token together.
    qk_norm_is_wide: ClassVar[bool] = False
    #: Whether layers behind the last one draft, and what they pass on: hidden states before the last norm, or after it.
    drafts: str = ""  # or "before norm", or "after norm"
    #: Whether the model does nothing but draft, so that ``nextn_predict_layers`` counts all its layers.
    only_drafts: ClassVar[bool] = False
    #: Whether a reranker's scores add up to 1.
    scores_are_probabilities: ClassVar[bool] = False
    #: Matrices whose results their ``.scale`` tensors multiply.
    scaled: ClassVar[frozenset[str]] = optional.ATTENTION | optional.STATE_SPACE | {"eh_proj"}
    #: Optional tensors, ``attn_output.bias``, that the graph leaves out where a file has them.
    unused: ClassVar[frozenset[str]] = frozenset()

    #: What the embeddings, the result of each block, and the logits are multiplied by.
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    logit_scale: float = 1.0

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.eps = hparams.number(self.eps_key)
        self.causal = hparams.get_bool("attention.causal", True)
        more = 0 if self.only_drafts else hparams.get_int("nextn_predict_layers", 0)
        self.n_drafting = more  # layers that only draft tokens come last
        self.n_layer -= self.n_drafting
        if self.n_layer < 1:
            raise ModelError(f"{hparams.architecture}.nextn_predict_layers leaves no layers to run")

    def tensors(self, tensors: Mapping[str, TensorSource]) -> Mapping[str, TensorSource]:
        return optional.applied(tensors, self.scaled_in, self.unused)

    def scaled_in(self, i: int) -> frozenset[str]:
        """Matrices of layer ``i`` whose results scales multiply; of -1, those of no layer."""
        return self.scaled

    def graphs(self) -> Mapping[str, Callable[[GraphBuilder], Tensor | None]]:
        return {MAIN: self.build, DRAFT: self.draft, HEAD: self.after_pooling}

    def build(self, g: GraphBuilder) -> Tensor | None:
        return self.head(g, self.layers(g))

    def layers(self, g: GraphBuilder) -> Tensor:
        """The residual stream ``[t, n_embd]`` after the last layer."""
        x = self.embed(g)
        for i in range(self.n_layer):
            with g.layer(i) as blk:
                x = g.layer_output(self.layer(g, x, blk, i))
        return x

    def embed(self, g: GraphBuilder) -> Tensor:
        return _times(blocks.embedding(g, self.n_embd), self.embedding_scale)

    def layer(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        """The residual stream ``[t, n_embd]`` after layer ``i``, whose tensors begin with ``blk``."""
        blocks = zip((self.attention, self.feed_forward), self.norms_before, self.norms_after, strict=True)
        for block, before, after in blocks:
            h = block(g, self.norm(g, x, blk + before) if before else x, blk, i)
            x = x + _times(self.norm(g, h, blk + after) if after else h, self.residual_scale)
        return x

    def head(self, g: GraphBuilder, x: Tensor) -> Tensor:
        x = self.norm(g, g.get_rows(x, g.output_ids), "output_norm")
        return _times(blocks.output_head(g, x), self.logit_scale)

    def draft(self, g: GraphBuilder) -> Tensor | None:
        """Multi-token prediction (Gloeckle et al. 2024, arXiv:2404.19737; DeepSeek-V3, arXiv:2412.19437, section 2.2).

        Of a token, and the hidden state of the position before it, the logits of the token after it; the output
        ``hidden`` is what the next draft takes. None where the file has no such layer.
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
        heads = (g.find_weight(f"{each}.weight", shape) for each in (f"{name}shared_head_head", "output", "token_embd"))
        return _times(g.linear(normed, next(head for head in heads if head)), self.logit_scale)

    def draft_input(self, g: GraphBuilder, token: Tensor, name: str) -> Tensor:
        """The residual stream that a layer which drafts takes: a normalized ``token [t, n_embd]`` and ``hidden``."""
        before = self.norm(g, g.input("hidden", (N_TOKENS, self.n_embd)), f"{name}hnorm")
        return blocks.linear(g, g.concat(token, before), f"{name}eh_proj", self.n_embd)

    def last_stream(self, g: GraphBuilder, x: Tensor) -> Tensor:
        """What logits are of, ``[t, n_embd]``, where there are several residual streams."""
        return x

    def draft_norm(self, g: GraphBuilder, name: str) -> str:
        """The norm before the logits of a draft, whose tensors begin with ``name``."""
        return f"{name}shared_head_norm" if g.find_weight(f"{name}shared_head_norm.weight") else "output_norm"

    def after_pooling(self, g: GraphBuilder) -> None:
        """What files of embedding models and rerankers have for pooled hidden states."""
        x = g.input("pooled", (N_SEQS, self.n_embd))
        pooling.dense(g, x)
        pooling.classifier(g, x, self.classifier_activation(g), eps=self.eps, softmax=self.scores_are_probabilities)

    def classifier_activation(self, g: GraphBuilder) -> Activation:
        """What a reranker has between its two matrices."""
        return g.tanh

    def norm(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        return blocks.rms_norm(g, x, name, self.eps)

    def heads(self, i: int) -> Heads:
        return read_heads(self.hparams, self.n_embd, i)

    def rope(self, g: GraphBuilder, i: int) -> Rope | None:
        """The rotation of layer ``i``; None for a layer without positions."""
        return read_rope(self.hparams, g, self.heads(i).k_dim, neox=self.neox)

    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        """Self-attention of a normalized ``x``; options as in ``blocks.self_attention``."""
        options = {"window": self.window(i), **self.sight()} | options
        if self.qk_norm:
            norm = partial(blocks.norm_all_heads, norm=self.norm) if self.qk_norm_is_wide else self.norm
            options = {"norm" if self.qk_norm == "before rope" else "late_norm": norm} | options
        return blocks.self_attention(g, x, blk, self.heads(i), self.rope(g, i), **options)

    def sight(self) -> dict[str, Any]:
        """Options of attention: what reads to both sides has no use for a cache."""
        return {} if self.causal else {"causal": False, "cache": False}

    def window(self, i: int) -> int:
        """Positions that layer ``i`` attends to; 0 for all."""
        return 0

    def feed_forward(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        """The feed-forward block, or experts, of a normalized ``x``."""
        return blocks.gated_feed_forward(g, x, blk, self.n_ff(i), g.silu)

    def n_ff(self, i: int) -> int:
        return self.hparams.count("feed_forward_length", i)


def _times(x: Tensor, factor: float) -> Tensor:
    return x if factor == 1.0 else x * factor


class LayerNormDecoder(Decoder):
    """A decoder whose norms are LayerNorm, with or without bias."""

    eps_key = "attention.layer_norm_epsilon"

    def norm(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        return blocks.layer_norm(g, x, name, self.eps)
