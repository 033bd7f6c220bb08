"""Muse Glimmer."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pumice.plugin.convert import QUERIES, Conversion, LazyTensor, layer_of, number, sliding_layers


class MuseGlimmer(Conversion):
    """The text model of Muse Glimmer: gated attention, sliding windows, unweighted norms of queries and keys."""

    architecture = "muse-glimmer"
    needed = {"post_norm_eps": 1e-8}
    named_as = "gemma2"
    pre_tokenizers = ["llama4"]
    more_names = {"lm_head": "output", "model.layers.{}.self_attn.gate_proj": "blk.{}.attn_gate"}
    special_tokens = {"eot": "<|eot|>"}
    integers = {"attention.sliding_window": "sliding_window"}
    numbers = {"final_logit_softcapping": "final_logit_softcapping", "logit_scale": "output_multiplier"}
    computed = {"attention.sliding_window_pattern": lambda self: sliding_layers(self.config)}
    interleaves = True
    changes = {"layernorm.weight": lambda norm: norm + 1.0}

    def check_config(self) -> None:
        super().check_config()
        c = self.config
        turned = [bool(theta) for theta in c.first("layer_rope_theta") or ()]
        if turned not in ([], sliding_layers(c)) or c.whole_rope.get("rope_type") not in (None, "default"):
            raise c.unsupported("layer_rope_theta", "RoPE in sliding layers alone, without scaling")

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if name.endswith(QUERIES[0]):  # the constant factor becomes the norm's weight
            dim, layer = self.head_dim, layer_of(name)
            factor = number(self.config, "qk_scale_factor")
            yield f"blk.{layer}.attn_q_norm.weight", LazyTensor.of(np.full(dim, factor))
            yield f"blk.{layer}.attn_k_norm.weight", LazyTensor.of(np.ones(dim))
        yield from super().convert(name, tensor)
