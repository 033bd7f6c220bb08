"""Qwen 3 Next and Qwen 3.5: linear attention (gated delta nets) in most layers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pumice.plugin.convert import MOST_LAYERS, Conversion, LazyTensor, concatenate, in_layers, layer_of, sliding_layers
from pumice_architectures.conversions.drafting import draft_name
from pumice_architectures.conversions.mamba import decay
from pumice_architectures.conversions.qwen import Qwen2MoE, packed_experts


class Qwen3Next(Qwen2MoE):
    """Qwen 3 Next; draft layers are ``mtp.*`` in checkpoints."""

    architecture = "qwen3next"
    inner_eps = 1e-6
    needed = {"norm_topk_prob": True}
    integers = Qwen2MoE.integers | {
        "ssm.conv_kernel": "linear_conv_kernel_dim",
        "ssm.state_size": "linear_key_head_dim",
        "ssm.group_count": "linear_num_key_heads",
        "ssm.time_step_rank": "linear_num_value_heads",
    }
    renames = {r"^model\.mtp\.": "mtp.", r"\.dt_bias$": ".dt_proj.bias"}

    @property
    def n_draft(self) -> int:
        """Return the number of draft layers: the configuration's, or that of the tensors."""
        if self.config.first("mtp_num_hidden_layers"):
            return self.config.need("mtp_num_hidden_layers", most=MOST_LAYERS)
        layers = [layer_of(name) for name in self.folder.tensors if ".mtp.layers." in f".{name}"]
        return min(1 + max(layers, default=-1), MOST_LAYERS)

    def metadata(self) -> dict[str, Any]:
        c = self.config
        metadata = super().metadata() | {
            "ssm.inner_size": c.need("linear_value_head_dim") * c.need("linear_num_value_heads"),
            "full_attention_interval": c.first("full_attention_interval") or 4,
            "rope.dimension_count": self.n_rot(0.25),
        }
        if kinds := c.first("layer_types"):
            recurrent = [kind == "linear_attention" for kind in kinds]
            metadata["attention.recurrent_layers"] = recurrent + [False] * self.n_draft
        return metadata | ({"nextn_predict_layers": self.n_draft} if self.n_draft else {})

    def rename(self, name: str) -> str | None:
        new_name = super().rename(name)
        return new_name and draft_name(new_name, self.n_layer)

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if name.endswith(".A_log"):
            tensor = decay(tensor)
        elif "conv1d" in name:
            tensor = tensor.squeeze()
        elif name.endswith("norm.weight") and not name.endswith("linear_attn.norm.weight"):
            tensor = tensor + 1.0
        if name.endswith("in_proj_qkvz.weight"):
            qkv, z = self._parted(tensor)
            layer = name.split(".")[2]
            yield f"blk.{layer}.attn_qkv.weight", qkv
            yield f"blk.{layer}.attn_gate.weight", z
        else:
            yield from super().convert(name, tensor)

    def _parted(self, tensor: LazyTensor) -> tuple[LazyTensor, LazyTensor]:
        """Split a matrix interleaved by head into queries, keys and values, and gates."""
        c = self.config
        n_head, n_key = c.need("linear_num_key_heads"), c.need("linear_key_head_dim")
        n_value = c.need("linear_num_value_heads") // n_head * c.need("linear_value_head_dim")
        heads = tensor.reshape(n_head, -1, tensor.shape[-1])
        q, k, v, z = (
            part.reshape(-1, tensor.shape[-1]) for part in heads.split(n_key, n_key, n_value, n_value, axis=1)
        )
        return concatenate([q, k, v]), z


class Qwen35(Qwen3Next):
    """Qwen 3.5: value heads are interleaved over the key heads."""

    architecture = "qwen35"
    pre_tokenizers = ["qwen35", "qwen2"]
    SECTIONS = [11, 11, 10, 0]  # default sections of M-RoPE if config.json has none

    def metadata(self) -> dict[str, Any]:
        return {"rope.dimension_sections": self.SECTIONS} | super().metadata()

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if "linear_attn." in name:
            tensor = self._in_turns(name, tensor)
        yield from super().convert(name, tensor)

    def _in_turns(self, name: str, tensor: LazyTensor) -> LazyTensor:
        c = self.config
        n_keys = c.need("linear_num_key_heads") * c.need("linear_key_head_dim")
        n_value = c.need("linear_value_head_dim")
        part = name.split("linear_attn.")[1].split(".")[0]
        if part in ("in_proj_qkv", "conv1d"):
            tensor = tensor.squeeze() if part == "conv1d" else tensor
            keys, values = tensor.split(2 * n_keys, tensor.shape[0] - 2 * n_keys)
            return concatenate([keys, self._turned(values, 0, n_value)])
        if part == "in_proj_z":
            return self._turned(tensor, 0, n_value)
        if part in ("in_proj_a", "in_proj_b", "A_log", "dt_proj"):
            return self._turned(tensor, 0, 1)
        return self._turned(tensor, 1, n_value) if part == "out_proj" else tensor

    def _turned(self, tensor: LazyTensor, axis: int, head_dim: int) -> LazyTensor:
        """Reorder heads on an axis from ``[keys, values per key]`` to ``[values per key, keys]``."""
        n_key = self.config.need("linear_num_key_heads")
        n_each = self.config.need("linear_num_value_heads") // n_key
        before, after = tensor.shape[:axis], tensor.shape[axis + 1 :]
        parts = tensor.reshape(*before, n_key, n_each, head_dim, *after)
        order = list(range(len(parts.shape)))
        order[axis], order[axis + 1] = order[axis + 1], order[axis]
        return parts.transpose(*order).reshape(*tensor.shape)


class Qwen35MoE(Qwen35):
    """Qwen 3.5 with experts."""

    architecture = "qwen35moe"


class MiniCPMV46(Qwen35):
    """The text model of MiniCPM-V 4.6."""

    dropped = ("model.merger.", "mtp")

    @property
    def n_draft(self) -> int:
        return 0


class LaraMini(Conversion):
    """Lara Mini: Qwen 3.5's delta nets with one input matrix, sliding windows, experts beside a shared one."""

    architecture = "lara-mini"
    inner_eps = 1e-6
    needed = {"norm_topk_prob": True}
    named_as = "qwen3next"
    pre_tokenizers = ["qwen2"]
    integers = Qwen3Next.integers | {
        "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
        "attention.sliding_window": "sliding_window",
    }
    renames = {r"\.dt_bias$": ".dt_proj.bias"}
    more_names = in_layers("model.layers.{}.", "blk.{}.", {
        "linear_attn.out_norm": "ssm_norm", "linear_attn.in_proj_b": "ssm_beta", "linear_attn.in_proj_a": "ssm_alpha",
        "linear_attn.in_proj_qkv": "attn_qkv", "linear_attn.in_proj_z": "attn_gate",
    })  # fmt: skip
    changes = {".A_log": decay, "conv1d.weight": LazyTensor.squeeze}

    def metadata(self) -> dict[str, Any]:
        c = self.config
        return super().metadata() | {
            "ssm.inner_size": c.need("linear_value_head_dim") * c.need("linear_num_value_heads"),
            "attention.recurrent_layers": [kind == "linear_attention" for kind in c["layer_types"]],
            "attention.sliding_window_pattern": sliding_layers(c),
            "rope.dimension_count": self.head_dim,
        }

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        c, base = self.config, name.removesuffix("in_proj.weight")
        if name.endswith("linear_attn.in_proj.weight"):
            n_value = c.need("linear_num_value_heads")
            keys = c.need("linear_num_key_heads") * c.need("linear_key_head_dim")
            values = n_value * c.need("linear_value_head_dim")
            parts = tensor.split(2 * keys + values, values, n_value, n_value)
            for part, rows in zip(("qkv", "z", "b", "a"), parts, strict=True):
                yield from super().convert(f"{base}in_proj_{part}.weight", rows)
        else:
            yield from packed_experts(self, name, tensor)
