"""HRM: two stacks of layers, run in cycles."""

from __future__ import annotations

import re
from typing import Any

from pumice.plugin.convert import Conversion, Folder, number


class HRMText(Conversion):
    """HRM for text: the layers of the low stack precede those of the high stack."""

    architecture = "hrm_text"
    named_as = "llama"
    flags = {"hrm.prefix_lm": "prefix_lm"}
    renames = {r"\.attn\.": ".self_attn."}
    joined = {"gqkv_proj": ("gate_proj", "q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
    more_names = {
        "model.layers.{}.self_attn.gate_proj.weight": "blk.{}.attn_gate.weight",
        "model.z_L_init": "hrm.z_l_init",
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
