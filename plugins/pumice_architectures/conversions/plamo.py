"""PLaMo, all generations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pumice.plugin.convert import Conversion, LazyTensor, number
from pumice_architectures.conversions.mamba import decay

# Offsets that are added to norm weights, by the suffix of their names.
OFFSETS = {
    ".pre_mixer_norm.weight": 1.0,
    ".post_mixer_norm.weight": 1 / 5,
    ".pre_mlp_norm.weight": 1.0,
    ".post_mlp_norm.weight": 1 / 5**1.5,
    ".q_norm.weight": 1.0,
    ".k_norm.weight": 1.0,
    ".norm.weight": 1.0,
}


def shifted(name: str, tensor: LazyTensor) -> LazyTensor:
    """Add the offset to a norm's weights; other tensors are unchanged."""
    offset = next((by for end, by in OFFSETS.items() if name.endswith(end)), None)
    return tensor if offset is None else tensor + offset


class Plamo(Conversion):
    """PLaMo 13B: reorders query heads so that those with the same key head are adjacent."""

    architecture = "plamo"
    vocabularies = ["sentencepiece"]
    N_CTX, N_KV = 4096, 5  # missing in configurations

    def metadata(self) -> dict[str, Any]:
        c = self.config
        return {
            "context_length": self.N_CTX,
            "embedding_length": c.need("hidden_size"),
            "feed_forward_length": c.need("intermediate_size"),
            "block_count": self.n_layer,
            "attention.head_count": c.need("num_attention_heads"),
            "attention.head_count_kv": self.N_KV,
            "attention.layer_norm_rms_epsilon": number(c, "rms_norm_eps"),
        }

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        n_each = self.config.need("num_attention_heads") // self.N_KV
        if name.endswith("q_proj.weight"):
            rows = tensor.reshape(n_each, self.N_KV, self.head_dim, -1).transpose(1, 0, 2, 3)
            tensor = rows.reshape(*tensor.shape)
        elif name.endswith("o_proj.weight"):
            columns = tensor.reshape(-1, n_each, self.N_KV, self.head_dim).transpose(0, 2, 1, 3)
            tensor = columns.reshape(*tensor.shape)
        yield from super().convert(name, tensor)


class Plamo2(Conversion):
    """PLaMo 2: Mamba in every other layer."""

    architecture = "plamo2"
    vocabularies = ["plamo"]
    integers = {"vocab_size": "vocab_size"}
    renames = {
        r"\.dt_bias$": ".dt_proj.bias",
        r"\.(dt|B|C)_norm_weight$": r".\1_norm.weight",
        r"\.(q|k)_weight$": r".\1.weight",
    }

    def metadata(self) -> dict[str, Any]:
        c = self.config
        step = c.first("mamba_step") or 2
        one_left = self.n_layer <= step // 2
        attends = [i == self.n_layer - 1 if one_left else i % step == step // 2 for i in range(self.n_layer)]
        dim, n_mamba = c.first("hidden_size_per_head") or 128, c.first("mamba_num_heads") or 64
        metadata = {
            "vocab_size": c.need("vocab_size"),
            "context_length": c.first("max_position_embeddings") or 2048,
            "embedding_length": c.need("hidden_size"),
            "attention.key_length": dim,
            "attention.value_length": dim,
            "block_count": self.n_layer,
            "attention.layer_norm_rms_epsilon": float(c.first("rms_norm_eps") or 1e-6),
            "rope.freq_base": float(c.whole_rope.get("rope_theta", 10000)),
            "ssm.state_size": c.first("mamba_d_state") or 64,
            "ssm.conv_kernel": c.first("mamba_d_conv") or 4,
            "ssm.time_step_rank": n_mamba,
            "ssm.inner_size": n_mamba * dim,
            "ssm.group_count": 0,
            "feed_forward_length": c.need("intermediate_size"),
        }
        if c.first("mamba_enabled") is False:
            return metadata
        heads = {"attention.head_count": "num_attention_heads", "attention.head_count_kv": "num_key_value_heads"}
        return metadata | {
            key: [c.need(name) if attends_here else 0 for attends_here in attends] for key, name in heads.items()
        }

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if name.endswith(".A_log"):
            tensor = decay(tensor)
        elif name.endswith(".conv1d.weight"):
            tensor = tensor.squeeze()
        elif not name.endswith(("dt_norm.weight", "B_norm.weight", "C_norm.weight")):
            tensor = shifted(name, tensor)
        yield from super().convert(name, tensor)


class Plamo3(Conversion):
    """PLaMo 3: sliding windows in most layers."""

    architecture = "plamo3"
    vocabularies = ["plamo"]
    integers = {"vocab_size": "vocab_size"}

    def metadata(self) -> dict[str, Any]:
        c = self.config
        metadata = super().metadata()
        window = c.first("window_size", "sliding_window")
        if window is not None:
            metadata["attention.sliding_window"] = window
            metadata["attention.sliding_window_pattern"] = c["sliding_window_pattern"]
        if (factor := c.first("rope_scaling_factor") or 1) != 1:
            metadata |= {
                "rope.scaling.type": "yarn",
                "rope.scaling.factor": float(factor),
                "rope.scaling.original_context_length": c.need("initial_context_length"),
                "rope.scaling.yarn_beta_fast": 32.0,
                "rope.scaling.yarn_beta_slow": 1.0,
            }
        return metadata

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        yield from super().convert(name, shifted(name, tensor))
