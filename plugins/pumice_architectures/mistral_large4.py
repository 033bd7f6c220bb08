"""Mistral Large 4 (2026): latent attention that layers share, with an indexer, and sharper the longer the context."""

from __future__ import annotations

from typing import Any

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn import read_rope
from pumice.plugin.nn.blocks import layer_norm, linear, width
from pumice.plugin.nn.latent import latent_weights
from pumice.plugin.nn.rope import Rope
from pumice_architectures.sparse_latent import SparseLatent


class MistralLarge4(SparseLatent):
    """Some layers attend to the latents of an earlier one, some have no positions; logits are capped."""

    drafts = ""
    gate = "softmax"
    logit_softcap = 0.0

    def rope(self, g: GraphBuilder, i: int) -> Rope:
        return read_rope(self.hparams, g, self.head_sizes(i)[1], neox=False, mscale=1.0, mscale_all_dim=1.0)

    def has_positions(self, i: int) -> bool:
        return bool(self.hparams.per_layer("attention.rope_pattern", i + 1)[i])

    def has_indexer(self, i: int) -> bool:
        return bool(self.hparams.per_layer("attention.indexer.types", i + 1, default=1)[i])

    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        (n_head, k_dim, v_dim), rank, n_tokens = self.head_sizes(i), self.kv_lora_rank, x.shape[0]
        rope = self.rope(g, i) if self.has_positions(i) else None
        nope = k_dim - rope.n_rot if rope else k_dim
        q = linear(g, x, blk + "attn_q", n_head * k_dim).reshape(n_tokens, n_head, k_dim)
        q, keys = self.sharper(g, q, blk + "attn_scale"), None
        k_b, v_b, _ = latent_weights(g, blk, n_head, rank, nope, v_dim)
        queries = g.batched_linear(g.slice(q, 0, nope), k_b)
        if rope:
            queries = g.concat(queries, rope(g, g.slice(q, nope, k_dim)))
        source = self.hparams.count("attention.kv_source_layers", i, default=i, low=0)
        if source == i:
            compressed = linear(g, x, blk + "attn_kv_a_mqa", rank + k_dim - nope)
            latent = self.norm(g, g.slice(compressed, 0, rank), blk + "attn_kv_a_norm")
            keys = latent.reshape(n_tokens, 1, rank)
            if rope:
                turned = g.slice(compressed, rank, width(compressed)).reshape(n_tokens, 1, rope.n_rot)
                keys = g.concat(keys, rope(g, turned))
        seen = self.seen(g, x, x, blk, i) | ({} if source == i else {"cache": g.cache(source)})
        y = g.batched_linear(g.attention(queries, keys, None, scale=k_dim**-0.5, v_dim=rank, **seen), v_b)
        return linear(g, y.reshape(n_tokens, n_head * v_dim), blk + "attn_output", self.n_embd)

    def sharper(self, g: GraphBuilder, q: Tensor, name: str) -> Tensor:
        """Multiply the queries of each head by a linear function of the logarithm of their position, from 1 on."""
        n_head = int(q.shape[1])
        position = g.scale(g.position_scale(g.positions, 1, 1.0), 1.0, -1.0).reshape(q.shape[0], 1)
        weight, bias = g.weight(f"{name}.weight", (n_head, 1)), g.weight(f"{name}.bias", (n_head,))
        return q * g.linear(position, weight, bias).reshape(q.shape[0], n_head, 1)

    def indexer(self, g: GraphBuilder, x: Tensor, compressed: Tensor, blk: str, rope: Rope) -> Tensor:
        n_head, dim, name = self.n_index_head, self.index_dim, blk + "indexer."
        q = layer_norm(g, x, name + "q_norm", self.index_eps)
        q = linear(g, q, name + "attn_q_b", n_head * dim).reshape(x.shape[0], n_head, dim)
        q = self.sharper(g, q, name + "scale")
        k = layer_norm(g, linear(g, x, name + "attn_k", dim), name + "k_norm", self.index_eps)
        k = k.reshape(x.shape[0], 1, dim)
        if self.has_positions(int(blk.split(".")[1])):
            q, k = rope(g, q), rope(g, k)
        return g.choose_positions(q, k, linear(g, x, name + "proj", n_head), n_chosen=self.n_chosen, n_ctx=g.n_ctx)
