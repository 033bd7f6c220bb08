"""Granite Switch: LoRA adapters inside the model, activated by tokens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from pumice.plugin.convert import ConvertError, Folder, LazyTensor, concatenate, layer_of, number
from pumice_architectures.conversions.granite import GraniteMoE


class GraniteSwitch(GraniteMoE):
    """Each matrix carries the adapters' low-rank factors; the first adapter is zero."""

    architecture = "graniteswitch"
    named_as = "granite"
    dropped = (*GraniteMoE.dropped, "model.switch.", "switch.", "lm_head.")
    unused = (*GraniteMoE.unused, "adapter_token_ids", "control_to_substitute_lut")
    # Module -> the parts of its name.
    PARTS = {
        "self_attn.qkv_proj": ("attn_q", "attn_k", "attn_v"),
        "self_attn.o_proj": ("attn_output",),
        "shared_mlp.input_linear": ("ffn_gate", "ffn_up"),
        "shared_mlp.output_linear": ("ffn_down",),
    }

    def __init__(self, folder: Folder) -> None:
        super().__init__(folder)
        self.n_layer -= 1  # one layer only switches adapters

    @property
    def head_dim(self) -> int:
        return self.config.first("projection_head_dim", "head_dim") or super().head_dim

    def metadata(self) -> dict[str, Any]:
        c = self.config
        metadata = super().metadata() | {
            "rope.dimension_count": c.first("head_dim") or super().head_dim,
            "adapters.count": c.need("num_adapters"),
            "adapters.lora_rank": c.need("max_lora_rank"),
            "adapters.token_ids_activate": c["adapter_token_ids"],
            "adapters.token_ids_substitute": c["adapter_substitute_token_ids"],
            "adapters.router_gain": number(c, "control_token_gain") if c.first("control_token_gain") else 15.0,
        }
        return metadata | ({} if c.first("num_local_experts") else {"expert_used_count": 0})

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        module = next((module for module in self.PARTS if f".{module}." in name), None)
        if module is None:
            yield from super().convert(name, tensor)
            return
        blk, end = f"blk.{layer_of(name)}.", name.partition(f".{module}.")[2]
        parts = self.PARTS[module]
        if end == "base_layer.weight":
            yield from self._base(blk, parts, tensor)
        elif end.startswith("lora_"):
            part = parts[int(end.rpartition(".")[2]) if "." in end else 0]
            of_adapters = tensor.reshape(tensor.shape[0], *tensor.shape[2:])
            if end.startswith("lora_B"):
                of_adapters = self._in_pairs(part, of_adapters)
            none = LazyTensor.of(np.zeros((1, *of_adapters.shape[1:])))
            yield f"{blk}{part}.{end[:6].lower()}", concatenate([none, of_adapters])
        else:
            raise ConvertError(f"unknown tensor {name!r} for architecture {self.architecture}")

    def _base(self, blk: str, parts: tuple[str, ...], tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if parts[0] == "attn_q":
            rows = tensor.split(*(self._n_head(part) * self.head_dim for part in parts))
            turned = [
                self._in_pairs(part, rows_of_part[None])[0] for part, rows_of_part in zip(parts, rows, strict=True)
            ]
            yield f"{blk}attn_qkv.weight", concatenate(turned)
        else:
            rows = tensor.split(*(tensor.shape[0] // len(parts),) * len(parts))
            yield from ((f"{blk}{part}.weight", rows_of_part) for part, rows_of_part in zip(parts, rows, strict=True))

    def _n_head(self, part: str) -> int:
        return self.config.need("num_attention_heads" if part == "attn_q" else "num_key_value_heads")

    def _in_pairs(self, part: str, tensor: LazyTensor) -> LazyTensor:
        """Reorder rows ``[adapter, row, ...]`` of queries and keys from halves to pairs."""
        if part not in ("attn_q", "attn_k"):
            return tensor
        n, rows, *rest = tensor.shape
        n_head = self._n_head(part)
        halves = tensor.reshape(n, n_head, 2, rows // n_head // 2, *rest)
        return halves.transpose(0, 1, 3, 2, *range(4, 4 + len(rest))).reshape(n, rows, *rest)
