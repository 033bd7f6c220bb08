"""Nemotron with attention only, and Nemotron H with state spaces and experts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pumice.plugin.convert import Conversion, ConvertError, Folder, LazyTensor, layer_of, parameters
from pumice_architectures.conversions.mamba import ANY_CONTEXT, mamba2_tensor


class Nemotron(Conversion):
    """Nemotron and Minitron. GGUF stores 1 + weight for norms."""

    architecture = "nemotron"
    hidden_act = "relu2"
    vocabularies = ["sentencepiece", "bpe"]
    integers = {"vocab_size": "vocab_size"}
    numbers = {"attention.layer_norm_epsilon": ("layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps")}
    changes = {"norm.weight": lambda norm: norm + 1.0}

    def metadata(self) -> dict[str, Any]:
        factor = self.config.first("factor")
        scaling = {"rope.scaling.type": "none"} if factor is None else {"rope.scaling.type": "linear"}
        return scaling | super().metadata() | {"rope.dimension_count": self.n_rot(0.5)} | (
            {} if factor is None else {"rope.scaling.factor": float(factor)}
        )  # fmt: skip

    def other_metadata(self) -> dict[str, Any]:
        return {"tokenizer.ggml.padding_token_id": 0, "tokenizer.ggml.unknown_token_id": 1}


class NemotronH(Conversion):
    """Nemotron H: each layer is Mamba 2, attention, or a feed-forward block, with or without experts."""

    architecture = "nemotron_h"
    needed = {"mlp_hidden_act": "relu2", "mamba_hidden_act": "silu", "time_step_min": 0.001}
    required_of_experts = ("norm_topk_prob",)
    pre_tokenizers = ["tekken", "llama-bpe", "gpt-2"]
    n_vocab_multiple = 8
    n_draft_name = "num_nextn_predict_layers"
    LETTERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
    KINDS = {"linear_attention": "mamba", "full_attention": "attention"}
    DRAFT = {
        "0.enorm": "enorm", "0.hnorm": "hnorm", "0.eh_proj": "eh_proj", "1.norm": "post_attention_layernorm",
        "1.final_layernorm": "shared_head.norm",
    }  # fmt: skip
    interleaves = True

    def __init__(self, folder: Folder) -> None:
        self.config = folder.config
        self.check_config()
        pattern = self.config.first("hybrid_override_pattern", "layers_block_type", "layer_types") or []
        self.kinds = [self.LETTERS.get(kind, self.KINDS.get(kind, kind)) for kind in pattern]
        self.folder = folder
        self.n_layer = len(self.kinds)
        self.is_moe = "moe" in self.kinds  # transformers writes numbers of experts without any, too
        self.architecture = "nemotron_h_moe" if self.is_moe else "nemotron_h"
        if not self.kinds:
            raise ConvertError(f"{folder.path}: 'hybrid_override_pattern', the type of each layer, is missing")

    @property
    def n_draft(self) -> int:
        return super().n_draft if self.is_moe else 0

    def metadata(self) -> dict[str, Any]:
        c = self.config
        kinds = self.kinds + ["both"] * self.n_draft
        width = c.need("moe_intermediate_size") if self.is_moe else c.need("intermediate_size", "n_inner", "hidden_dim")
        dim = c.need("head_dim", "attention_head_dim")
        n_head_kv = c.need("num_key_value_heads")
        common = parameters(c).items()
        metadata = {key: value for key, value in common if self.is_moe or not key.startswith("expert_")} | {
            "block_count": len(kinds),
            "context_length": ANY_CONTEXT,
            "vocab_size": c.need("vocab_size"),
            "attention.key_length": dim,
            "attention.value_length": dim,
            "attention.head_count_kv": [n_head_kv if kind in ("attention", "both") else 0 for kind in kinds],
            "feed_forward_length": [width if kind in ("mlp", "moe", "both") else 0 for kind in kinds],
            "rope.scaling.finetuned": False,
            "ssm.conv_kernel": c.need("conv_kernel", "mamba_d_conv"),
            "ssm.state_size": c.need("ssm_state_size", "mamba_d_state", "state_size"),
            "ssm.group_count": self.n_group,
            "ssm.inner_size": c.need("mamba_num_heads") * c.need("mamba_head_dim"),
            "ssm.time_step_rank": c.need("mamba_num_heads"),
            "rope.dimension_count": c.need("hidden_size") // c.need("num_attention_heads"),
        }
        return metadata | (self._experts() if self.is_moe else {})

    def _experts(self) -> dict[str, Any]:
        c = self.config
        metadata = {
            "expert_used_count": c.need("num_experts_per_tok"),
            "expert_feed_forward_length": c.need("moe_intermediate_size"),
            "expert_shared_feed_forward_length": c.need("moe_shared_expert_intermediate_size"),
            "expert_count": c.need("n_routed_experts"),
            "expert_shared_count": c.need("n_shared_experts", least=0),
            "expert_weights_norm": bool(c.first("norm_topk_prob")),
            "expert_weights_scale": float(c.first("routed_scaling_factor") or 1.0),
            "expert_group_count": c.need("n_group"),
        }
        if c.first("moe_latent_size") is not None:
            metadata["moe_latent_size"] = c.need("moe_latent_size")
        return metadata | ({"nextn_predict_layers": self.n_draft} if self.n_draft else {})

    @property
    def n_group(self) -> int:
        return self.config.need("n_groups", "mamba_n_groups")

    def rename(self, name: str) -> str | None:
        if name.startswith("mtp."):
            layer, _, rest = name.removeprefix("mtp.layers.").partition(".")
            head, _, suffix = rest.rpartition(".")
            draft_part = self.DRAFT.get(f"{layer}.{head}")
            name = (
                f"model.layers.{self.n_layer}.{draft_part}.{suffix}"
                if draft_part
                else f"backbone.layers.{self.n_layer}.{rest}"
            )
            return super().rename(name) if self.n_draft else None
        new_name = super().rename(name)
        if new_name and new_name.startswith("model.") and not new_name.startswith("model.lm_head"):
            new_name = f"backbone.{new_name.removeprefix('model.')}"
        return new_name

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        layer = layer_of(name)
        if ".mixer.experts." in name:
            name = name.replace("backbone.", "model.").replace(".mixer.", ".mlp.")
        if 0 <= layer < self.n_layer and self.kinds[layer] == "mamba":
            name = name.replace("mixer.dt_bias", "mixer.dt.bias")
            yield from mamba2_tensor(self, name, tensor, self.n_group)
        else:
            yield from super().convert(name, tensor)


class NemotronHPuzzle(NemotronH):
    """Nemotron H with a number and width of experts per layer; draft layers are dropped."""

    architecture = "nemotron_h_moe"

    def metadata(self) -> dict[str, Any]:
        return super().metadata() | {
            "feed_forward_length": self.widths,
            "expert_feed_forward_length": self.widths,
            "expert_used_count": [block.get("num_experts_per_tok") or 0 for block in self.blocks],
        }

    def __init__(self, folder: Folder) -> None:
        blocks = folder.config.first("block_configs")
        if not blocks:
            raise ConvertError(f"{folder.path}: 'block_configs', the type of each layer, is missing")
        self.blocks = blocks
        self.widths = [block.get("moe_intermediate_size") or 0 for block in blocks]
        folder.config = folder.config | {
            "hybrid_override_pattern": [block["block_type"] for block in blocks],
            "moe_intermediate_size": max(self.widths),
            "num_experts_per_tok": 1,
        }
        super().__init__(folder)

    @property
    def n_draft(self) -> int:
        return 0
