"""Draft models of the DFlash family."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pumice.plugin.convert import (
    MOST_HEAD_DIM,
    Conversion,
    ConvertError,
    Folder,
    HFConfig,
    LazyTensor,
    number,
    sliding_layers,
)
from pumice_architectures.conversions.llama import tokens_of_target
from pumice_architectures.conversions.rope_factors import proportional_factors

N_BLOCK = 16  # default tokens per block


class DFlash(Conversion):
    """DFlash 1 and 2: a few layers like Qwen 3's."""

    architecture = "dflash"
    named_as = "qwen3"
    is_draft = True
    renames = {r"^(?!model\.)": "model.", r"(sinks?|sink_bias|sink_param|codebook)$": r"\1.weight"}
    more_names = {
        "model.fc": "fc",
        "model.hidden_norm": "enc.output_norm",
        "model.lm_head": "output",
        "model.d2t": "d2t",
        "model.markov_head.markov_w1": "markov_w1",
        "model.markov_head.markov_w2": "markov_w2",
        "model.confidence_head.proj": "conf_proj",
        "model.candidate_selector.predecessor_codebook": "selector_predecessor",
        "model.candidate_selector.successor_codebook": "selector_successor",
        "model.candidate_selector.hidden_projection": "selector_hidden",
        "model.layers.{}.attention_conv.base_kernel": "blk.{}.attn_conv_base",
        "model.layers.{}.attention_conv.kernel_projection": "blk.{}.attn_conv_proj",
        "model.layers.{}.mlp_conv.base_kernel": "blk.{}.ffn_conv_base",
        "model.layers.{}.mlp_conv.kernel_projection": "blk.{}.ffn_conv_proj",
        "model.layers.{}.self_attn.attention_sink_bias": "blk.{}.attn_sinks",
        "model.layers.{}.self_attn.sinks": "blk.{}.attn_sinks",
        "model.layers.{}.layer_scalar": "blk.{}.layer_output_scale",
    }
    TURNED = tuple(f"self_attn.{which}.weight" for which in ("q_proj", "k_proj", "q_norm", "k_norm"))
    COUNTS = ("conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k")
    NUMBERS = {
        "attention.value_scale": "attention_value_scale", "logit_scale": "output_multiplier",
        "final_logit_softcapping": "final_logit_softcapping", "embedding_scale": "input_embedding_scale",
    }  # fmt: skip
    MASK = "mask_embedding.pt"

    def __init__(self, folder: Folder) -> None:
        super().__init__(folder)
        if folder.has(self.MASK):
            raise ConvertError(
                f"{folder.path}: refusing to read {self.MASK}: this format can run code; save the tensor as safetensors"
            )

    def check_config(self) -> None:
        self.config = self.in_one(self.config)
        super().check_config()

    @staticmethod
    def in_one(config: HFConfig) -> HFConfig:
        """Merge ``dflash_config``, whose keys take precedence, into the configuration."""
        return config | (config.first("dflash_config") or {})

    def metadata(self) -> dict[str, Any]:
        c = self.config
        metadata = super().metadata() | {"block_size": c.first("block_size") or N_BLOCK}
        metadata |= {name: c.need(name) for name in self.COUNTS if "conv_kernel_size" in c}
        metadata |= {key: number(c, name) for key, name in self.NUMBERS.items() if c.first(name)}
        if (part := c.whole_rope.get("partial_rotary_factor", 1.0)) != 1:
            metadata["rope.dimension_count"] = int(self.head_dim * part)
        if c.first("target_layer_ids"):
            metadata["target_layers"] = [int(layer) + 1 for layer in c["target_layer_ids"]]
        if (causal := c.first("is_causal", "causal")) is not None:
            metadata["attention.causal"] = bool(causal)
        if "mrope_section" in self.target_conversion.config.rope:
            metadata["rope.dimension_sections"] = [self.head_dim // 2, 0, 0, 0]
        return metadata | self.windows()

    def windows(self) -> dict[str, Any]:
        """Return the metadata of layers with a sliding window."""
        c = self.config
        window = c.first("swa_window_size", "sliding_window")
        if not window or not (c.first("use_swa") or c.first("use_sliding_window")):
            return {}
        which = [True] * self.n_layer if c.first("use_swa") else sliding_layers(c)
        return {"attention.sliding_window": window, "attention.sliding_window_pattern": which}

    def other_metadata(self) -> dict[str, Any]:
        id = self.config.first("mask_token_id")
        return {} if id is None else {"tokenizer.ggml.mask_token_id": id}

    def rename(self, name: str) -> str | None:
        if name.endswith("embed_tokens.weight") and self.config.first("has_embed_tokens") is False:
            return None
        return super().rename(name)

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if self.config.first("rope_is_neox_style") is False and name.endswith(self.TURNED):
            pairs = tensor.reshape(-1, self.head_dim // 2, 2, *tensor.shape[1:])
            tensor = pairs.transpose(0, 2, 1, *range(3, len(pairs.shape))).reshape(*tensor.shape)
        yield from super().convert(name, tensor)


class DSpark(DFlash):
    """DFlash with a Markov head, whose input includes the previous token."""

    needed = {"markov_head_type": "vanilla"}
    dropped = ("t2d",)

    @staticmethod
    def in_one(config: HFConfig) -> HFConfig:
        """Count layers from 0; the speculators package counts from 1."""
        layers = config.first("aux_hidden_state_layer_ids")
        more = {} if layers is None else {"target_layer_ids": [int(layer) - 1 for layer in layers]}
        return DFlash.in_one(config | more)

    @property
    def n_draft_vocab(self) -> int:
        """Number of tokens in the draft's vocabulary."""
        return self.config.first("draft_vocab_size") or self.config.need("vocab_size")

    def metadata(self) -> dict[str, Any]:
        c = self.config
        outside = "transformer_layer_config" in c or "aux_hidden_state_layer_ids" in c
        anchor = c.first("sample_from_anchor")
        return super().metadata() | {
            "sample_from_anchor": not outside if anchor is None else bool(anchor),
            "has_confidence_head": any("confidence_" in name for name in self.folder.tensors),
        }

    def rename(self, name: str) -> str | None:
        whole = self.n_draft_vocab == self.config.need("vocab_size")
        return None if whole and name.endswith("lm_head.weight") else super().rename(name)

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        yield from super().convert(name, tokens_of_target(self, tensor) if name == "model.d2t" else tensor)


class Gemma4DSpark(DFlash):
    """DSpark for Gemma 4, with Gemma layers: values equal keys, and norms follow each block."""

    renames = DFlash.renames | {
        r"model\.confidence_proj\.": "model.confidence_head.proj.",
        r"layer_scalar$": "layer_scalar.weight",
    }
    more_names = DFlash.more_names | {
        "model.layers.{}.post_attention_layernorm": "blk.{}.post_attention_norm",
        "model.layers.{}.pre_feedforward_layernorm": "blk.{}.ffn_norm",
        "model.layers.{}.post_feedforward_layernorm": "blk.{}.post_ffw_norm",
    }
    ROPE = {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6}  # default
    hidden_act = "gelu_pytorch_tanh"
    required = ("attention_k_eq_v",)
    needed = {"attention_k_eq_v": True, "attention_bias": False,
              "enable_moe_block": False, "markov_head_type": "vanilla"}  # fmt: skip

    @staticmethod
    def in_one(config: HFConfig) -> HFConfig:
        rope = config.first("rope_parameters") or {}
        whole = rope.get("full_attention", rope) or Gemma4DSpark.ROPE
        return DFlash.in_one(config | {"rope_parameters": whole})

    @property
    def head_dim(self) -> int:
        return self.config.need("global_head_dim", most=MOST_HEAD_DIM)

    def metadata(self) -> dict[str, Any]:
        c = self.config
        anchor = c.first("sample_from_anchor")
        return super().metadata() | {
            "attention.head_count_kv": c.need("num_global_key_value_heads"),
            "attention.key_length": self.head_dim,
            "attention.value_length": self.head_dim,
            "attention.scale": 1.0,
            "embedding_scale": c.need("hidden_size") ** 0.5,
            "hidden_activation": self.hidden_act,
            "rope.dimension_count": self.head_dim,
            "sample_from_anchor": anchor is not False,
            "has_confidence_head": any("confidence_" in name for name in self.folder.tensors),
        }

    def more_tensors(self) -> Iterator[tuple[str, LazyTensor]]:
        rope = self.config.whole_rope
        if rope.get("rope_type") == "proportional":
            part = float(rope.get("partial_rotary_factor", self.ROPE["partial_rotary_factor"]))
            yield from proportional_factors(self.head_dim, part)


class MuseGlimmerAssistant(DFlash):
    """The draft model of Muse Glimmer."""

    renames = DFlash.renames | {
        r"model\.encoder\.fc\.": "model.fc.",
        r"model\.encoder\.output_norm_enc\.": "model.hidden_norm.",
    }

    def windows(self) -> dict[str, Any]:
        window, which = self.config.first("sliding_window"), sliding_layers(self.config)
        return (
            {"attention.sliding_window": window, "attention.sliding_window_pattern": which} if window and which else {}
        )
