"""Dory: learned scales are stored as the factors that they stand for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from pumice.plugin.convert import Conversion, Folder, LazyTensor, in_layers, number


class Dory(Conversion):
    architecture = "dory"
    named_as = "llama"
    vocabularies = ["bpe", "sentencepiece"]
    integers = {
        "vocab_size": "vocab_size",
        "num_loops": "n_recurrent_loops",
        "attention.sliding_window": "sliding_window",
        "rope.dimension_count": "head_dim",
    }
    needed = {"recurrent_kv_cache_mode": "per_loop"}
    constants = {"attention.layer_norm_rms_epsilon": 1e-6}
    renames = {r"^backbone\.": "model.", r"\.embeddings\.": ".embed_tokens.", r"\.g_proj\.": ".gate_proj."}
    more_names = {
        **in_layers("model.layers.{}.", "blk.{}.", {
            "self_attn.gate_proj": "attn_gate", "self_attn.sqk": "attn_q_scale.weight",
            "self_attn.s_gate": "attn_gate_scale.weight", "mlp.suv_gate": "ffn_gate_scale.weight",
            "mlp.suv_up": "ffn_up_scale.weight", "lambda_1": "attn_rate.weight", "lambda_2": "ffn_rate.weight",
        }),
        "lm_head.logit_scale": "output_scale.weight",
    }  # fmt: skip

    def __init__(self, folder: Folder) -> None:
        super().__init__(folder)
        kinds = self.config["layer_types"]
        self.is_split = "mlp" in kinds  # attention and feed-forward blocks are layers of their own
        self.kinds = kinds[::2] if self.is_split else kinds
        self.n_layer = len(self.kinds)

    def metadata(self) -> dict[str, Any]:
        c, size = self.config, 2 if self.is_split else 1
        return super().metadata() | {
            "input_block_count": c.need("n_input_layers", least=0) // size,
            "output_block_count": c.need("n_output_layers", least=0) // size,
            "attention.sliding_window_pattern": [kind == "sliding_attention" for kind in self.kinds],
        }

    def rename(self, name: str) -> str | None:
        """Return a name with the attention and feed-forward blocks of a layer together."""
        name = super().rename(name) or ""
        match = re.match(r"model\.layers\.(\d+)\.(mixer|attn_alpha|mlp_alpha)(.*)", name)
        if not match:
            return name or None
        layer = int(match[1])
        part = {"attn_alpha": "lambda_1", "mlp_alpha": "lambda_2"}.get(match[2], ("self_attn", "mlp")[layer % 2])
        return f"model.layers.{layer // 2}.{part}{match[3]}"

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        c, n_embd = self.config, self.config.need("hidden_size")
        unit = 1 / number(c, "initializer_range")  # what trained scales are divided by
        if name.endswith((".lambda_1", ".lambda_2")):
            tensor = (tensor * (unit * number(c, "ngpt_alpha_init"))).map(np.abs)
        elif name.endswith(".sqk"):
            tensor = (tensor * (unit * self.head_dim**0.5)).map(np.square)
        elif name.endswith(".s_gate"):
            tensor = (tensor * (unit * n_embd**0.25)).map(np.square)
        elif name.endswith((".suv_gate", ".suv_up", ".logit_scale")):
            tensor = tensor * (unit if name.endswith(".logit_scale") else n_embd**0.5)
        yield from super().convert(name, tensor)
