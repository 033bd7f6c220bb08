"""Gemma 3n and 4, and EmbeddingGemma."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import NormalDist
from typing import Any

import numpy as np

from pumice.plugin.convert import MOST_HEAD_DIM, LazyTensor, in_layers, layer_of, pooling, sliding_layers, stack
from pumice_architectures.conversions.gemma import Gemma3
from pumice_architectures.conversions.rope_factors import proportional


class EmbeddingGemma(Gemma3):
    """EmbeddingGemma: Gemma 3 with bidirectional attention."""

    architecture = "gemma-embedding"
    needed = {"use_bidirectional_attention": True}
    renames = {r"^(?!model\.|lm_head\.)": "model."}

    def metadata(self) -> dict[str, Any]:
        return (
            super().metadata() | {"attention.sliding_window": self.config.need("sliding_window")} | pooling(self.folder)
        )


class Gemma3n(Gemma3):
    """Gemma 3n: per-layer embeddings, several residual streams (AltUp), low-rank residuals (LAuReL)."""

    architecture = "gemma3n"
    needed = {"altup_num_inputs": 4, "altup_active_idx": 0, "altup_correct_scale": True}
    norm_offset = 0.0
    renames = {"_scale$": "_scale.weight"}
    STREAMS = ("altup_unembed_projections", "altup_projections")
    integers = {
        "altup.active_idx": "altup_active_idx",
        "altup.num_inputs": "altup_num_inputs",
        "embedding_length_per_layer_input": "hidden_size_per_layer_input",
        "attention.shared_kv_layers": "num_kv_shared_layers",
    }

    def metadata(self) -> dict[str, Any]:
        sparse = self.config.first("activation_sparsity_pattern") or [0.0] * self.n_layer
        return super().metadata() | {
            "activation_sparsity_scale": [deviations(float(part)) for part in sparse],
            "attention.sliding_window_pattern": sliding_layers(self.config),
        }

    def tensors(self) -> Iterator[tuple[str, LazyTensor]]:
        streams: dict[str, dict[int, LazyTensor]] = {}
        for name, tensor in super().tensors():
            base = name.split(".")[0]
            if base in self.STREAMS:
                streams.setdefault(base, {})[layer_of(name)] = tensor
            else:
                yield name, tensor
        for base, of_stream in streams.items():
            yield self.names(f"model.{base}.weight"), stack([of_stream[i] for i in sorted(of_stream)])

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if any(f"{base}." in name for base in self.STREAMS):
            yield name.removeprefix("model."), tensor
        elif "embed_tokens" in name:
            missing = max((self.config.first("vocab_size") or 0) - tensor.shape[0], 0)
            yield self.names(name), tensor.pad(missing) if missing else tensor
        else:
            yield from super().convert(name, tensor)


def deviations(part: float) -> float:
    """Return the number of standard deviations below which lies ``part`` of a normal distribution."""
    return float(np.float32(NormalDist().inv_cdf(part))) if 0 < part < 1 else float("-inf" if part <= 0 else "inf")


class Gemma4(Gemma3):
    """Gemma 4: heads of two sizes, experts, its own tokenizer."""

    architecture = "gemma4"
    required = ("rope_theta",)
    needed = {}
    vocabularies = ["gemma4"]
    norm_offset = 0.0
    renames = {
        r"(per_dim_scale|layer_scalar)$": r"\1.weight",
        r"(\.experts\..*)(?<!weight)(?<!weight_scale)(?<!input_scale)$": r"\1.weight",
    }
    integers = {
        "attention.shared_kv_layers": "num_kv_shared_layers",
        "expert_feed_forward_length": ("expert_intermediate_size", "moe_intermediate_size"),
    }
    more_names = in_layers("model.layers.{}.router.", "blk.{}.", {
        "scale": "ffn_gate_inp.scale", "per_expert_scale": "ffn_down_exps.scale",
    })  # fmt: skip

    def _of_whole_layers(self, name: str, key: str) -> int | None:
        """Return a value for layers without a window, which the configuration stores in one of two places."""
        kinds = self.config.first("layer_types") or []
        for layer, values in (self.config.first("per_layer_config") or {}).items():
            if int(layer) < len(kinds) and kinds[int(layer)] == "full_attention" and key in values:
                return self.config.first(name) or values[key]
        return self.config.first(name)

    @property
    def whole_head_dim(self) -> int:
        """Width of a head in layers without a window."""
        head_dim = self._of_whole_layers("global_head_dim", "head_dim") or self.head_dim
        return (self.config | {"global_head_dim": head_dim}).need("global_head_dim", most=MOST_HEAD_DIM)

    def metadata(self) -> dict[str, Any]:
        c = self.config
        windows, dim = sliding_layers(c), self.whole_head_dim
        metadata = super().metadata() | {
            "embedding_length_per_layer_input": c.first("hidden_size_per_layer_input") or 0,
            "attention.sliding_window_pattern": windows,
            "attention.key_length": dim,
            "attention.value_length": dim,
            "attention.key_length_swa": c.need("head_dim"),
            "attention.value_length_swa": c.need("head_dim"),
            "rope.dimension_count": dim,
            "rope.dimension_count_swa": int(c.need("head_dim") * float(c.rope.get("partial_rotary_factor", 1.0))),
        }
        if c.first("use_double_wide_mlp"):
            n_own = self.n_layer - (c.first("num_kv_shared_layers") or 0)
            width = c.need("intermediate_size")
            metadata["feed_forward_length"] = [width if i < n_own else 2 * width for i in range(self.n_layer)]
        n_head_kv = self._of_whole_layers("num_global_key_value_heads", "num_key_value_heads")
        if n_head_kv is not None and c.first("num_key_value_heads") is not None:
            metadata["attention.head_count_kv"] = [c["num_key_value_heads"] if swa else n_head_kv for swa in windows]
        return metadata

    def other_metadata(self) -> dict[str, Any]:
        suppressed = self.folder.optional_json("generation_config.json").get("suppress_tokens")
        metadata: dict[str, Any] = {"tokenizer.ggml.add_space_prefix": False, "tokenizer.ggml.add_bos_token": True}
        unified = "Unified" in self.config.model_class and suppressed is not None
        return metadata | ({"tokenizer.ggml.suppress_tokens": suppressed} if unified else {})

    def more_tensors(self) -> Iterator[tuple[str, LazyTensor]]:
        yield from proportional(self.config, self.whole_head_dim)


class Gemma4Assistant(Gemma4):
    """The draft model of Gemma 4."""

    architecture = "gemma4-assistant"
    named_as = "gemma4"
    unused = ("masked_embedding",)
    more_names = {"pre_projection": "nextn.pre_projection", "post_projection": "nextn.post_projection"}

    def metadata(self) -> dict[str, Any]:
        width = self.config.need("backbone_hidden_size")
        return super().metadata() | {"embedding_length_out": width, "nextn_predict_layers": self.n_layer}
