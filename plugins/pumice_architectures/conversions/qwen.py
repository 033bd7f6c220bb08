"""Qwen 1 to 3, with and without experts and images, and models with their layout."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pumice.plugin.convert import SIGMOID, Conversion, LazyTensor, pooling, sliding_layers


class Qwen(Conversion):
    architecture = "qwen"
    vocabularies = ["bpe", "tiktoken"]
    pre_tokenizers = ["qwen2"]


class Qwen2(Conversion):
    """Qwen 2 and 2.5."""

    architecture = "qwen2"
    vocabularies = ["sentencepiece", "bpe"]
    pre_tokenizers = ["qwen2"]
    renames = {r"^thinker\.": "", r"^(?!thinker\.|model\.|lm_head\.|score\.)": "model."}

    def metadata(self) -> dict[str, Any]:
        return super().metadata() | pooling(self.folder)


class Qwen2VL(Qwen2):
    """The text model of Qwen 2 VL and 2.5 VL."""

    architecture = "qwen2vl"


class Dream(Qwen2):
    """Dream: masked diffusion with Qwen 2's layers."""

    architecture = "dream"
    constants = {"attention.causal": False}

    def other_metadata(self) -> dict[str, Any]:
        return mask_token(self)


def mask_token(conversion: Conversion) -> dict[str, Any]:
    """Return the metadata of the mask token, the placeholder for text to fill in."""
    id = conversion.config.first("mask_token_id")
    return {} if id is None else {"tokenizer.ggml.mask_token_id": id}


class Qwen3(Qwen2):
    architecture = "qwen3"


class Qwen3VL(Qwen3):
    """The text model of Qwen 3 VL; image features also enter some of its layers."""

    architecture = "qwen3vl"
    computed = {"n_deepstack_layers": lambda self: n_deepstack(self)}


def n_deepstack(conversion: Conversion) -> int:
    """Return the number of layers that image features enter."""
    config = conversion.config
    within = config.section("thinker_config") if isinstance(config.get("thinker_config"), dict) else config
    has_images = isinstance(within.get("vision_config"), dict)
    return len(within.section("vision_config").first("deepstack_visual_indexes") or ()) if has_images else 0


class Qwen3ASR(Qwen3):
    """The text model of Qwen 3 ASR."""

    architecture = "qwen3vl"
    constants = {"n_deepstack_layers": 0}
    defaults = {"rope.dimension_sections": [24, 20, 20, 0]}  # of the published models; a sound has one axis
    TEMPLATE = (
        "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + "
        "'\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
    )

    def other_metadata(self) -> dict[str, Any]:
        return end_of_turn(self, "bos", "eos") | {"tokenizer.chat_template": self.TEMPLATE}


def end_of_turn(conversion: Conversion, *names: str) -> dict[str, Any]:
    """Return the metadata of the end-of-turn token, for the special tokens of these names, such as ``eos``."""
    id = conversion.added_ids.get("<|im_end|>")
    return {} if id is None else {f"tokenizer.ggml.{name}_token_id": id for name in names}


class Qwen2MoE(Conversion):
    """Qwen 2 with experts, as separate matrices or packed in one."""

    architecture = "qwen2moe"
    needed = {"norm_topk_prob": False}
    pre_tokenizers = ["qwen2"]
    integers = {"expert_shared_feed_forward_length": "shared_expert_intermediate_size"}

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        yield from packed_experts(self, name, tensor)


def packed_experts(
    conversion: Conversion, name: str, tensor: LazyTensor, *, columns: bool = False
) -> Iterator[tuple[str, LazyTensor]]:
    """Unpack a tensor with the gate and up matrices of a layer's experts, stacked, or side by side if ``columns``."""
    base = name.removesuffix(".weight")
    if base.endswith("experts.gate_up_proj"):
        for part, half in zip(("gate", "up"), tensor.halves(-1 if columns else -2), strict=True):
            new = base.replace("gate_up_proj", f"{part}_proj.weight")
            yield conversion.names(new), half.transpose(0, 2, 1) if columns else half
    elif base.endswith("experts.down_proj"):
        packed = columns and len(tensor.shape) == 3 and ".weight" not in name
        yield conversion.names(f"{base}.weight"), tensor.transpose(0, 2, 1) if packed else tensor
    else:
        yield conversion.names(name), tensor


class Qwen3MoE(Qwen2MoE):
    """Qwen 3 with experts."""

    architecture = "qwen3moe"
    required = ("norm_topk_prob",)
    needed = {"norm_topk_prob": True}


class RND1(Qwen2MoE):
    """RND1: masked diffusion with the layers of Qwen 3 with experts."""

    architecture = "rnd1"
    needed = {"norm_topk_prob": True}
    constants = {"attention.causal": False}

    def other_metadata(self) -> dict[str, Any]:
        return mask_token(self)


class Qwen3VLMoE(Qwen2MoE):
    """The text model of Qwen 3 VL with experts."""

    architecture = "qwen3vlmoe"
    needed = {"norm_topk_prob": True}
    renames = {r"thinker\.": ""}
    computed = {"n_deepstack_layers": lambda self: n_deepstack(self)}

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        """Convert a tensor; transformers stores the experts' matrices as rows, and the published models as columns."""
        inputs = -2 if "gate_up_proj" in name else -1
        columns = len(tensor.shape) == 3 and tensor.shape[inputs] == self.config.need("hidden_size")
        yield from packed_experts(self, name, tensor, columns=columns)


class Qwen3OmniMoE(Qwen3VLMoE):
    """The text model of Qwen 3 Omni."""

    def other_metadata(self) -> dict[str, Any]:
        return end_of_turn(self, "bos", "eos")


class Dots1(Qwen2MoE):
    """dots.llm1: shared experts."""

    architecture = "dots1"
    needed = {}
    integers = Qwen2MoE.integers | {
        "leading_dense_block_count": "first_k_dense_replace",
        "expert_shared_count": "n_shared_experts",
    }
    numbers = {"expert_weights_scale": "routed_scaling_factor"}
    defaults = {"expert_gating_func": SIGMOID}
    flags = {"expert_weights_norm": "norm_topk_prob"}


class Mellum(Qwen2MoE):
    """Mellum 2: sliding windows in some layers."""

    architecture = "mellum"
    required = ("rope_theta",)
    needed = {"norm_topk_prob": True}
    named_as = "qwen3moe"

    def metadata(self) -> dict[str, Any]:
        metadata = super().metadata()
        window = self.config.first("sliding_window")
        if self.config.first("use_sliding_window") is False or window is None:
            return metadata
        windows = sliding_layers(self.config)
        return metadata | {"attention.sliding_window": window, "attention.sliding_window_pattern": windows}


class GroveMoE(Qwen2MoE):
    """Grove MoE: pairs of experts share a smaller one."""

    architecture = "grovemoe"
    needed = {"norm_topk_prob": True}
    unused = (".expert_bias",)
    constants = {"experts_per_group": 2, "expert_group_scale": 0.05}
    computed = {"expert_chunk_feed_forward_length": lambda self: self.config.first("head_dim") or 128}


class LLaDAMoE(Qwen2MoE):
    """LLaDA with experts: masked diffusion."""

    architecture = "llada-moe"
    needed = {}
    integers = {"expert_feed_forward_length": "expert_intermediate_size"}
    constants = {"attention.causal": False}

    def other_metadata(self) -> dict[str, Any]:
        return {"tokenizer.ggml.mask_token_id": 156895, "diffusion.shift_logits": False}  # missing in configurations
