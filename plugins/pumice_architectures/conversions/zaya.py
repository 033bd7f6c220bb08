"""ZAYA 1."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from pumice.plugin.convert import Conversion, LazyTensor
from pumice_architectures.conversions.qwen import packed_experts


class Zaya(Conversion):
    """The convolution of heads takes the bias of that of channels."""

    architecture = "zaya"
    needed = {"attention_bias": False}
    named_as = "llama"
    vocabularies = ["bpe", "sentencepiece"]
    integers = {
        "vocab_size": "vocab_size",
        "router_length": "router_hidden_size",
        "attention.channel_kernel": "cca_time0",
        "attention.head_kernel": "cca_time1",
        "attention.sliding_window": "sliding_window",
    }
    renames = {
        r"(states|residual)_(scale|bias)$": r"\1.\2",
        r"\.scale$": ".weight",
        r"balancing_biases$": "balancing.bias",
        r"qk_norm\.temp$": "qk_norm.temp.weight",
    }
    more_names = {
        "model.input_hidden_states": "token_embd_scale",
        "model.layers.{}.post_attention_residual_scale.hidden_states": "blk.{}.attn_scale",
        "model.layers.{}.post_attention_residual_scale.residual": "blk.{}.attn_residual_scale",
        "model.layers.{}.post_mlp_residual_scale.hidden_states": "blk.{}.ffn_scale",
        "model.layers.{}.post_mlp_residual_scale.residual": "blk.{}.ffn_residual_scale",
        "model.layers.{}.self_attn.qkv_proj.q_proj": "blk.{}.attn_q",
        "model.layers.{}.self_attn.qkv_proj.k_proj": "blk.{}.attn_k",
        "model.layers.{}.self_attn.qkv_proj.v_proj_current": "blk.{}.attn_v",
        "model.layers.{}.self_attn.qkv_proj.v_proj_delayed": "blk.{}.attn_v_delayed",
        "model.layers.{}.self_attn.qkv_proj.conv_qk_depthwise": "blk.{}.attn_channel_conv",
        "model.layers.{}.self_attn.qkv_proj.conv_qk_grouped": "blk.{}.attn_head_conv",
        "model.layers.{}.self_attn.qk_norm.temp": "blk.{}.attn_k_scale",
        "model.layers.{}.mlp.gate.balancing": "blk.{}.exp_probs_b",
        "model.layers.{}.mlp.gate.router_states": "blk.{}.ffn_router_last",
        "model.layers.{}.mlp.gate.down_proj": "blk.{}.ffn_router_in",
        "model.layers.{}.mlp.gate.router_mlp.norm": "blk.{}.ffn_router_norm",
        "model.layers.{}.mlp.gate.router_mlp.fc1": "blk.{}.ffn_router_1",
        "model.layers.{}.mlp.gate.router_mlp.fc2": "blk.{}.ffn_router_2",
        "model.layers.{}.mlp.gate.router_mlp.out_proj": "blk.{}.ffn_gate_inp",
        **{
            f"model.layers.{{}}.mlp.experts.{part}_proj": f"blk.{{}}.ffn_{part}_exps" for part in ("gate", "up", "down")
        },
    }

    def metadata(self) -> dict[str, Any]:
        c = self.config
        whole, local = (c["rope_parameters"].get(kind) or {} for kind in ("hybrid", "hybrid_sliding"))
        if len({rope.get("partial_rotary_factor", 1.0) for rope in (whole, local) if rope}) > 1:
            raise c.unsupported("rope_parameters", "one 'partial_rotary_factor'")
        bases = {"rope.freq_base": whole or local, "rope.freq_base_swa": local or whole}
        return super().metadata() | {
            **{key: float(rope["rope_theta"]) for key, rope in bases.items()},
            "attention.sliding_window_pattern": [kind == "hybrid_sliding" for kind in c["layer_types"]],
            "rope.dimension_count": int(self.head_dim * float((whole or local).get("partial_rotary_factor", 1.0))),
        }

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        d = self.head_dim
        if name.endswith("conv_qk_depthwise.bias"):
            return
        if name.endswith("conv_qk_depthwise.weight"):
            tensor = tensor.squeeze()
        elif name.endswith("conv_qk_grouped.weight"):
            tensor = tensor.reshape(-1, d, *tensor.shape[1:]).transpose(0, 1, 3, 2).reshape(-1, d, tensor.shape[2] * d)
        elif name.endswith("conv_qk_grouped.bias"):
            tensor = tensor.map(lambda x: x + self._moved_bias(name)).reshape(-1, d)
        yield from packed_experts(self, name, tensor)

    def _moved_bias(self, name: str) -> Any:
        """Return what a convolution of heads makes of the bias of that of channels."""
        base = name.removesuffix("conv_qk_grouped.bias")
        weight, bias = (
            self.folder.tensors[base + part].read().astype(np.float32)
            for part in ("conv_qk_grouped.weight", "conv_qk_depthwise.bias")
        )
        heads = weight.sum(axis=-1).reshape(-1, self.head_dim, self.head_dim)
        return np.einsum("hij,hj->hi", heads, bias.reshape(-1, self.head_dim)).reshape(-1)
