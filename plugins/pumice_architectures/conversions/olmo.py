"""OLMo, all generations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pumice.plugin.convert import Conversion, LazyTensor, sliding_layers
from pumice_architectures.conversions.llama import interleaved
from pumice_architectures.conversions.qwen import packed_experts


class Olmo(Conversion):
    """OLMo 1: norms without weights."""

    architecture = "olmo"
    pre_tokenizers = ["olmo"]

    def metadata(self) -> dict[str, Any]:
        metadata = super().metadata() | {"attention.layer_norm_epsilon": 1e-5}
        clip = self.config.first("clip_qkv")
        return metadata if clip is None else metadata | {"attention.clamp_kqv": float(clip)}

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        yield from super().convert(name, interleaved(self, name, tensor))


class Olmo2(Conversion):
    """OLMo 2, and OLMo 3 with sliding windows in three of four layers."""

    architecture = "olmo2"
    pre_tokenizers = ["dbrx", "olmo"]

    def metadata(self) -> dict[str, Any]:
        metadata = super().metadata()
        if self.config.first("sliding_window") is None:
            return metadata
        layers = sliding_layers(self.config) or [(i + 1) % 4 != 0 for i in range(self.n_layer)]
        return metadata | {
            "attention.sliding_window": self.config.need("sliding_window"),
            "attention.sliding_window_pattern": layers,
        }


class Olmoe(Conversion):
    """OLMo with experts."""

    architecture = "olmoe"
    pre_tokenizers = ["olmo"]

    def metadata(self) -> dict[str, Any]:
        return super().metadata() | {"attention.layer_norm_rms_epsilon": 1e-5}


class FlexOlmo(Olmo2):
    """OLMo 2 with experts."""

    architecture = "flexolmo"
    named_as = "olmo2"
    flags = {"expert_weights_norm": "norm_topk_prob"}
    more_names = {
        "model.layers.{}.mlp.gate": "blk.{}.ffn_gate_inp",
        **{
            f"model.layers.{{}}.mlp.experts.{part}_proj": f"blk.{{}}.ffn_{part}_exps" for part in ("gate", "up", "down")
        },
    }

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        yield from packed_experts(self, name, tensor)
