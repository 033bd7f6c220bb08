"""Qwen 2 and 3."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pumice.plugin.convert import Conversion, LazyTensor


class Qwen2(Conversion):
    """Qwen 2 and 2.5."""

    architecture = "qwen2"
    vocabularies = ("sentencepiece", "bpe")
    pre_tokenizers = ("qwen2",)


class Qwen3(Qwen2):
    """Qwen 3."""

    architecture = "qwen3"


class Qwen2MoE(Conversion):
    """Qwen 2 with experts, each a matrix of its own or all in one."""

    architecture = "qwen2moe"
    pre_tokenizers = ("qwen2",)

    def metadata(self) -> dict[str, Any]:
        found = super().metadata()
        for key, name in (
            ("expert_feed_forward_length", "moe_intermediate_size"),
            ("expert_shared_feed_forward_length", "shared_expert_intermediate_size"),
        ):
            if self.config.first(name) is not None:
                found[key] = self.config.need(name, least=0)
        return found

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        base = name.removesuffix(".weight")
        if base.endswith("experts.gate_up_proj"):
            half = tensor.shape[-2] // 2
            for part, rows in (("gate_proj", tensor[:, :half]), ("up_proj", tensor[:, half:])):
                yield from super().convert(base.replace("gate_up_proj", f"{part}.weight"), rows)
        else:
            yield from super().convert(f"{base}.weight" if base.endswith("experts.down_proj") else name, tensor)


class Qwen3MoE(Qwen2MoE):
    """Qwen 3 with experts."""

    architecture = "qwen3moe"
