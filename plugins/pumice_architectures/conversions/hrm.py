"""HRM: two stacks of layers, run in cycles."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pumice.plugin.convert import Conversion, Folder, LazyTensor, layer_of, number


class HRMText(Conversion):
    """HRM for text: the layers of the low stack precede those of the high stack."""

    architecture = "hrm_text"
    named_as = "llama"
    flags = {"hrm.prefix_lm": "prefix_lm"}
    FUSED = {
        "attn.gqkv_proj.weight": ("attn_gate", "attn_q", "attn_k", "attn_v"),
        "mlp.gate_up_proj.weight": ("ffn_gate", "ffn_up"),
    }

    def __init__(self, folder: Folder) -> None:
        super().__init__(folder)
        c = self.config
        self.n_stack = c.need("num_layers_per_stack", "num_hidden_layers")
        self.n_layer = self.n_stack * c.need("H_cycles") * (c.need("L_cycles") + 1)  # counted once per pass

    def metadata(self) -> dict[str, Any]:
        c = self.config
        return (
            {"hrm.prefix_lm": False}
            | super().metadata()
            | {
                "rope.dimension_count": self.head_dim,
                "embedding_scale": number(c, "embedding_scale"),
                "hrm.layers_per_stack": self.n_stack,
                "hrm.h_cycles": c.need("H_cycles"),
                "hrm.l_cycles": c.need("L_cycles"),
            }
        )

    def rename(self, name: str) -> str | None:
        new_name = super().rename(name)
        if new_name and (match := re.match(r"model\.([LH])_module\.layers\.(\d+)\.(.*)", new_name)):
            return f"model.layers.{int(match[2]) + self.n_stack * (match[1] == 'H')}.{match[3]}"
        return new_name

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        parts = next((parts for end, parts in self.FUSED.items() if name.endswith(end)), ())
        if name == "model.z_L_init":
            yield "hrm.z_l_init", tensor
        elif parts:
            rows = tensor.split(*(tensor.shape[0] // len(parts),) * len(parts))
            for part, values in zip(parts, rows, strict=True):
                yield f"blk.{layer_of(name)}.{part}.weight", values
        else:
            yield from super().convert(name.replace(".attn.", ".self_attn."), tensor)
