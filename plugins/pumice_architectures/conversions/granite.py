"""Granite: Llama with multipliers, and its variants with experts and state spaces."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pumice.plugin.convert import (
    MOST_LAYERS,
    Conversion,
    ConvertError,
    Folder,
    HFConfig,
    LazyTensor,
    in_layers,
    layer_of,
    sliding_layers,
)
from pumice_architectures.conversions.llama import Llama
from pumice_architectures.conversions.mamba import check_steps, mamba2_tensor


@dataclass(frozen=True)
class VisionStream:
    """Embeddings of an image that Granite 4 Vision adds to the inputs of a layer of the text model.

    Attributes:
        layer: that layer.
        block: block of the encoder whose output they are of.
        projector: start of the names of the tensors of their projector.
        offset: which patch of each 2 x 2 the queries see; -1 for the mean of more patches.
    """

    layer: int
    block: int
    projector: str
    offset: int


def vision_streams(config: HFConfig) -> list[VisionStream]:
    """Return the embeddings of an image by layer of the text model; empty for models without an encoder.

    Raises ConvertError unless the first ones belong to the first layer, and others to a layer each.
    """
    pairs, layers = config.first("deepstack_layer_map") or [], config.first("spatial_target_layers") or []
    vision = config.get("vision_config")
    if not isinstance(vision, dict) or not (pairs or layers):
        return []
    n_blocks = (config | vision).need("num_hidden_layers", most=MOST_LAYERS)
    n_layer = config.need("num_hidden_layers", most=MOST_LAYERS)
    last = config.get("spatial_vision_layer", -1)
    taken = [(block, layer, f"layerwise_projectors.{i}.", -1) for i, (block, layer) in enumerate(pairs)]
    taken += [(last, layer, f"spatial_projectors.{i}.", i) for i, layer in enumerate(layers)]
    streams = []
    for block, layer, projector, offset in taken:
        # Outputs are counted from the embeddings on, or from the end.
        number = block - 1 if block > 0 else n_blocks + block
        target = layer if layer >= 0 else n_layer + layer
        if not 0 <= number < n_blocks or not 0 <= target < n_layer or block == 0:
            raise ConvertError(f"{config.path}: 'deepstack_layer_map' has block {block} and layer {layer}")
        streams.append(VisionStream(target, number, projector, offset))
    streams.sort(key=lambda stream: stream.layer)
    if streams[0].layer or len({stream.layer for stream in streams}) < len(streams):
        raise ConvertError(f"{config.path}: 'deepstack_layer_map' must begin with layer 0 and name each layer once")
    return streams


class Granite(Llama):
    architecture = "granite"
    required: tuple[str, ...] = ("attention_multiplier",)
    numbers = {
        "attention.scale": "attention_multiplier",
        "embedding_scale": "embedding_multiplier",
        "residual_scale": "residual_multiplier",
        "logit_scale": "logits_scaling",
    }
    without = ("attention.key_length", "attention.value_length")
    dropped: tuple[str, ...] = ("encoder.",)
    unused: tuple[str, ...] = ("image_", "layerwise_projectors", "spatial_projectors")

    @property
    def head_dim(self) -> int:
        return self.config.need("hidden_size") // self.config.need("num_attention_heads")

    def metadata(self) -> dict[str, Any]:
        metadata = super().metadata()
        metadata = {key: value for key, value in metadata.items() if value or key not in self.numbers}
        streams = vision_streams(self.config)
        if not streams:
            return metadata
        numbers = [-1] * self.n_layer
        for number, stream in enumerate(streams[1:], 1):
            numbers[stream.layer] = number
        return metadata | {"deepstack_mapping": numbers}


class GraniteMoE(Granite):
    """Granite 3 with experts; gate and up in one tensor."""

    architecture = "granitemoe"

    def metadata(self) -> dict[str, Any]:
        shared = self.config.first("shared_intermediate_size")
        return super().metadata() | ({"expert_shared_feed_forward_length": shared} if shared else {})

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        shared = "_shexp" if self.config.first("num_local_experts") else ""  # a model without experts is dense
        for part, kind in (
            ("block_sparse_moe.input_linear.weight", "_exps"),
            ("shared_mlp.input_linear.weight", shared),
        ):
            if name.endswith(part):
                for which, half in zip(("gate", "up"), tensor.halves(-2), strict=True):
                    yield f"blk.{layer_of(name)}.ffn_{which}{kind}.weight", half
                return
        if name.endswith("shared_mlp.output_linear.weight"):
            yield f"blk.{layer_of(name)}.ffn_down{shared}.weight", tensor
        else:
            yield from super().convert(name, tensor)


class GraniteSWA(Granite):
    """Granite with sliding windows and attention sinks; gate and up of experts stay one tensor."""

    architecture = "granite_swa"
    named_as = "granitehybrid"
    more_names = in_layers("model.layers.{}.", "blk.{}.", {
        "self_attn.sinks": "attn_sinks.weight",
        "block_sparse_moe.experts.gate_up_proj": "ffn_gate_up_exps.weight",
        "block_sparse_moe.experts.down_proj": "ffn_down_exps.weight",
        "block_sparse_moe.input_linear": "ffn_gate_up_exps",
        "shared_mlp.input_linear": "ffn_up_shexp", "shared_mlp.output_linear": "ffn_down_shexp",
    })  # fmt: skip

    def metadata(self) -> dict[str, Any]:
        c = self.config
        windows = sliding_layers(c) or [i % 4 != 0 for i in range(self.n_layer)]
        metadata = super().metadata() | {
            "attention.sliding_window": c.first("sliding_window") or 128,
            "attention.sliding_window_pattern": windows,
        }
        if thetas := set(c.first("layer_rope_theta") or ()):
            if len(thetas) > 1 or not all(thetas):
                raise c.unsupported("layer_rope_theta", "the same base in all layers")
            metadata["rope.freq_base"] = float(thetas.pop())
        if c.first("no_rope_layers"):
            metadata["attention.rope_pattern"] = [bool(has_rope) for has_rope in c["no_rope_layers"]]
        if c.model_class.startswith("GraniteMoe") and c.first("shared_intermediate_size"):
            metadata["expert_shared_feed_forward_length"] = c.need("shared_intermediate_size")
        return metadata


class GraniteHybrid(GraniteMoE):
    """Granite 4: Mamba 2, with attention in some layers; without Mamba layers the model is Granite."""

    architecture = "granitehybrid"
    renames = GraniteMoE.renames | {r"\.dt_bias$": ".dt_proj.bias"}
    has_rope = False
    """True if attention turns queries and keys, whatever ``config.json`` says."""

    def __init__(self, folder: Folder) -> None:
        super().__init__(folder)
        self.attention_layers = self._attention_layers()
        has_states = len(self.attention_layers) < self.n_layer
        plain = "granitemoe" if self.config.first("num_experts_per_tok", "num_experts_per_token") else "granite"
        self.architecture = "granitehybrid" if has_states else plain
        self.n_vocab_multiple = 8 if has_states else 1
        is_part = "partial_rotary_factor" in self.config.whole_rope
        self.n_interleaved = self.n_rot() if is_part else 0

    def check_config(self) -> None:
        super().check_config()
        check_steps(self.config)

    def _attention_layers(self) -> list[int]:
        c = self.config
        if kinds := c.first("layer_types", "layers_block_type"):
            return [i for i, kind in enumerate(kinds) if kind in ("attention", "full_attention")]
        if layers := c.first("attn_layer_indices"):
            return list(layers)
        period, offset = c.need("attn_layer_period"), c.need("attn_layer_offset", least=0)
        return [i for i in range(self.n_layer) if i % period == offset]

    def metadata(self) -> dict[str, Any]:
        c = self.config
        has_states = self.architecture == "granitehybrid"
        rope = self.has_rope or c.first("position_embedding_type") == "rope"
        if not rope and not has_states:
            raise c.unsupported("position_embedding_type", "'rope' in a model without Mamba layers")
        n_head_kv = c.need("num_key_value_heads")
        attention = set(self.attention_layers)
        metadata = super().metadata() | {
            "ssm.conv_kernel": c.need("mamba_d_conv"),
            "ssm.state_size": c.need("mamba_d_state"),
            "ssm.group_count": self.n_group,
            "ssm.inner_size": c.need("mamba_expand") * c.need("hidden_size"),
            "ssm.time_step_rank": c.need("mamba_n_heads"),
            "attention.head_count_kv": [n_head_kv if i in attention else 0 for i in range(self.n_layer)],
            "rope.scaling.finetuned": rope,
        }
        if self.n_interleaved:
            metadata["rope.dimension_count"] = self.n_interleaved
        return metadata if rope else metadata | {"context_length": 1 << 20}

    @property
    def n_group(self) -> int:
        return self.config.need("mamba_n_groups", "n_groups")

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        is_mamba = layer_of(name) >= 0 and layer_of(name) not in self.attention_layers
        if is_mamba and "shared_mlp" not in name and "block_sparse_moe.input_linear" not in name:
            yield from mamba2_tensor(self, name, tensor, self.n_group)
        else:
            yield from super().convert(name, tensor)


class Bamba(GraniteHybrid):
    """Bamba: Granite 4 without multipliers; a half of each head turns."""

    required = ()
    has_rope = True

    def __init__(self, folder: Folder) -> None:
        super().__init__(folder)
        self.n_interleaved = self.n_rot(0.5)


class GraniteSpeech(Granite):
    """The text model of Granite Speech and Granite 4 Vision: Granite 3 or 4."""

    @classmethod
    def made_for(cls, folder: Folder) -> Conversion:
        is_hybrid = folder.config.get("model_type") == "granitemoehybrid"
        return (GraniteHybrid if is_hybrid else Granite)(folder)
