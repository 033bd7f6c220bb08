"""Encoders of sounds and their projectors, as projector files (mmproj)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pumice.plugin.convert import (
    MOST_LAYERS,
    Folder,
    GGMLType,
    HFConfig,
    LazyTensor,
    ProjectorConversion,
    in_layers,
)
from pumice_architectures.conversions.vision import Qwen3VL, Qwen25VL
from pumice_architectures.conversions.vision_documents import DotsOCR
from pumice_architectures.conversions.vision_mobilenet import Gemma3n
from pumice_architectures.conversions.vision_more import NemotronV2VL
from pumice_architectures.conversions.vision_recent import Gemma4

N_POSITIONS = 1500  # of Whisper's table, half a minute
CONVOLUTION = r"^a\..*conv.*\.weight$"


class Whisper(ProjectorConversion):
    """Whisper's encoder, whose configuration is ``audio_config``."""

    encoder_key = "audio_config"
    layer_keys: ClassVar[tuple[str, ...]] = ("encoder_layers", "num_hidden_layers")
    prefixes: tuple[str, ...] = ("audio_tower.", "multi_modal_projector.")
    types: ClassVar[Mapping[str, GGMLType]] = {r"\.conv1d\..*\.weight$": GGMLType.F16}
    renames: ClassVar[dict[str, str]] = {r"^multi_modal_projector\.": "audio.multi_modal_projector."}

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.config = folder.config
        self.audio = self.config.section(self.encoder_key, "the model takes no sound")
        self.n_layer = self.audio.need(*self.layer_keys, most=MOST_LAYERS)

    def metadata(self) -> dict[str, Any]:
        audio = {f"audio.{key}": value for key, value in self.of_audio().items()}
        return {"has_audio_encoder": True, "projector_type": self.projector_type, **audio}

    def of_audio(self) -> dict[str, Any]:
        """Return the keys ``clip.audio.*`` without that prefix."""
        self.audio.expect_activation("gelu")
        return {
            "projection_dim": self.projection_dim(),
            "embedding_length": self.audio.need("d_model", "hidden_size"),
            "feed_forward_length": self.audio.need("encoder_ffn_dim", "intermediate_size"),
            "block_count": self.n_layer,
            "attention.head_count": self.audio.need("encoder_attention_heads", "num_attention_heads"),
            "attention.layer_norm_epsilon": float(self.audio.first("layer_norm_eps") or 1e-5),
            "num_mel_bins": self.audio.need("num_mel_bins"),
        }

    def projection_dim(self) -> int:
        """Return the width of the language model, whose section may be one of a section (``thinker_config``)."""
        text = self.config.first("text_config")
        is_section = isinstance(text, dict) and "hidden_size" in text
        return (HFConfig(self.config.path, text) if is_section else self.config).need("hidden_size")

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if name.endswith(("conv1.bias", "conv2.bias")):
            tensor = tensor.reshape(tensor.shape[0], 1)
        yield self.names(name), tensor


def take_thinker(folder: Folder) -> None:
    """Put the configuration of an omni model's language model in the place of the whole model's, if there is one."""
    thinker = folder.config.get("thinker_config")
    if isinstance(thinker, dict):
        folder.config = folder.config | thinker


class Qwen2Audio(Whisper):
    projector_type = "qwen2a"


class AudioFlamingo3(Whisper):
    """Audio Flamingo 3, whose convolutions stay float32, since it was trained in bfloat16."""

    projector_type = "musicflamingo"
    types = {r"\.conv1d\..*\.weight$": GGMLType.F32}


class Qwen3ASRAudio(Whisper):
    """Qwen3-ASR, as its authors or as transformers store it. Positions are computed."""

    projector_type = "qwen3a"
    renames: ClassVar[dict[str, str]] = {
        r"^thinker\.": "",
        r"^multi_modal_projector\.linear_": "audio_tower.proj",
    }
    types = {r"\.conv.*\.weight$": GGMLType.F16}

    def __init__(self, folder: Folder) -> None:
        take_thinker(folder)
        super().__init__(folder)

    def metadata(self) -> dict[str, Any]:
        values = super().metadata()
        return {"audio.projector_type" if key == "projector_type" else key: value for key, value in values.items()}

    def rename(self, name: str) -> str | None:
        return super().rename(name.removeprefix("model.").removeprefix("thinker."))

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if ".conv2d" in name and name.endswith(".bias"):
            tensor = tensor.reshape(tensor.shape[0], 1, 1)
        yield self.names(name), tensor

    def more_tensors(self) -> Iterator[tuple[str, LazyTensor]]:
        yield positions(self.audio.need("d_model", "hidden_size"))


class Qwen25Omni(Qwen25VL):
    """Qwen2.5-Omni's encoders of images and of sound. Its parts that speak are left out."""

    projector_type = "qwen2.5o"
    prefixes = ("visual.", "audio_tower.")
    more_names: ClassVar[dict[str, str]] = {**Qwen25VL.more_names, "audio_tower.proj": "mm.a.fc"}
    unused = ("audio_tower.audio_bos_eos_token.",)

    def __init__(self, folder: Folder) -> None:
        take_thinker(folder)
        self.sound = Qwen2Audio(folder)
        super().__init__(folder)
        self.n_layer = max(self.n_layer, self.sound.n_layer)

    def metadata(self) -> dict[str, Any]:
        return super().metadata() | self.sound.metadata() | {"projector_type": self.projector_type}

    def of_vision(self) -> dict[str, Any]:
        return super().of_vision() | {"block_count": self.count_layers()}

    def times_a_second(self) -> int:
        return int(self.config.get("position_id_per_seconds", 25))

    def rename(self, name: str) -> str | None:
        return super().rename(name.removeprefix("thinker."))

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if name.startswith("audio_tower.") and name.endswith(("conv1.bias", "conv2.bias")):
            tensor = tensor.reshape(tensor.shape[0], 1)
        yield from super().convert(name, tensor)

    def forced_type(self, name: str, type: GGMLType) -> GGMLType | None:
        return self.sound.forced_type(name, type) or super().forced_type(name, type)

    def more_tensors(self) -> Iterator[tuple[str, LazyTensor]]:
        yield positions(self.sound.audio.need("d_model"))


class Qwen3Omni(Qwen3VL):
    """Qwen3-Omni's encoders of images and of sound, as its authors store them."""

    type_key = "vision.projector_type"
    prefixes = ("visual.", "audio_tower.")
    renames: ClassVar[dict[str, str]] = {
        r"^visual\.merger_list\.": "visual.deepstack_merger_list.",
        r"(merger\w*(?:\.\d+)?)\.ln_q\.": r"\1.norm.",
        r"(merger\w*(?:\.\d+)?)\.mlp\.0\.": r"\1.linear_fc1.",
        r"(merger\w*(?:\.\d+)?)\.mlp\.2\.": r"\1.linear_fc2.",
    }

    def __init__(self, folder: Folder) -> None:
        take_thinker(folder)
        self.sound = Qwen3ASRAudio(folder)
        self.sound_keys = self.sound.metadata()
        super().__init__(folder)
        self.n_layer = self.sound.n_layer = max(self.n_layer, self.sound.n_layer)  # for names of both

    def metadata(self) -> dict[str, Any]:
        return super().metadata() | self.sound_keys

    def of_vision(self) -> dict[str, Any]:
        n_layer = self.count_layers()
        flags = [i in self.deep_layers for i in range(n_layer)]
        return super().of_vision() | {"block_count": n_layer, "is_deepstack_layers": flags}

    def rename(self, name: str) -> str | None:
        return super().rename(name.removeprefix("thinker."))

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if name.startswith("audio_tower."):
            yield from self.sound.convert(name, tensor)
        else:
            yield from super().convert(name, tensor)

    def forced_type(self, name: str, type: GGMLType) -> GGMLType | None:
        return self.sound.forced_type(name, type) or super().forced_type(name, type)

    def more_tensors(self) -> Iterator[tuple[str, LazyTensor]]:
        yield from self.sound.more_tensors()


class SoundBeside(ProjectorConversion):
    """Part of the conversion of an encoder of images, for the encoder of sound in the same folder."""

    sound_key: ClassVar[str]  # section of the configuration
    layers_key = "num_hidden_layers"
    of_images: ClassVar[type[ProjectorConversion] | None] = None

    def __init__(self, folder: Folder) -> None:
        super().__init__(folder)
        self.audio = self.config.section(self.sound_key)
        self.n_sound_layers = self.audio.need(self.layers_key, most=MOST_LAYERS)
        self.n_layer = max(self.n_layer, self.n_sound_layers)  # for names of both

    @classmethod
    def made_for(cls, folder: Folder) -> ProjectorConversion:
        """Return the conversion; a model without sound has that of its images alone."""
        hears = isinstance(folder.config.get(cls.sound_key), dict)
        return cls(folder) if hears or cls.of_images is None else cls.of_images(folder)

    def metadata(self) -> dict[str, Any]:
        sound = {f"audio.{key}": value for key, value in self.of_sound().items()}
        return super().metadata() | {"has_audio_encoder": True} | sound

    def of_sound(self) -> dict[str, Any]:
        """Return the keys ``clip.audio.*`` without that prefix."""
        raise NotImplementedError

    def of_vision(self) -> dict[str, Any]:
        return super().of_vision() | {"block_count": self.count_layers()}


class Dots3Note(SoundBeside, DotsOCR):
    """dots3 note's encoders of images and of sound, as its authors store them."""

    type_key = "vision.projector_type"
    projector_type = "dots3note_v"
    sound_key = "audio_config"
    prefixes = ("vision_encoder.", "audio_encoder.")
    types = {r"\.ffn_gate_inp\.|\.exp_probs_b\.|\.conv2d|a\.conv_out": GGMLType.F32}
    renames: ClassVar[dict[str, str]] = {
        r"^audio_encoder\.(dots_encoder\.speech_encoder\.)?": "audio_tower.",
        r"\.mlp\.(gate_weight|router_bias)$": r".mlp.\1.weight",
    }
    more_names: ClassVar[dict[str, str]] = {
        "vision_encoder.patch_embed.proj": "v.patch_embd",
        "vision_encoder.patch_embed.norm": "v.pre_ln",
        "vision_encoder.post_trunk_norm": "mm.post_norm",
        "vision_encoder.adapter.ln_q": "mm.input_norm",
        "vision_encoder.adapter.mlp.0": "mm.0",
        "vision_encoder.adapter.mlp.2": "mm.2",
        **in_layers("vision_encoder.blocks.{}.", "v.blk.{}.", {
            "norm_1": "ln1", "attn.qkv": "attn_qkv", "attn.proj": "attn_out", "attn.q_norm": "attn_q_norm",
            "attn.k_norm": "attn_k_norm", "norm_2": "ln2", "mlp.fc1": "ffn_gate", "mlp.fc2": "ffn_down",
            "mlp.fc3": "ffn_up", "mlp.gate_weight": "ffn_gate_inp", "mlp.router_bias": "exp_probs_b",
            **{f"mlp.experts.fc{i}": f"ffn_{part}_exps" for i, part in ((1, "gate"), (2, "down"), (3, "up"))},
        }),
        "audio_tower.audio_adapter.proj.0": "mm.a.norm_pre",
        "audio_tower.audio_adapter.proj.1": "mm.a.mlp.1",
        "audio_tower.audio_adapter.proj.3": "mm.a.mlp.3",
        **{f"audio_tower.layers.{{}}.fc1_{part}": f"a.blk.{{}}.ffn_{part}" for part in ("gate", "up")},
    }  # fmt: skip
    n_embd_key = "embed_dim"

    def __init__(self, folder: Folder) -> None:
        audio, names = folder.config.section(self.sound_key), {"encoder_layers": "num_hidden_layers"}
        whisper = {names.get(name, name): value for name, value in audio.section("whisper_config").items()}
        folder.config |= {self.sound_key: {**audio, **whisper}}
        super().__init__(folder)
        self._check_rope()

    def _check_rope(self) -> None:
        rope = self.audio.first("rope_parameters") or {}
        if rope.get("partial_rotary_factor", 0.5) != 0.5 or rope.get("rope_theta", 10000.0) != 10000.0:
            raise self.audio.unsupported("rope_parameters", "half of a head, with the base 10000")

    @cached_property
    def processor(self) -> Mapping[str, Any]:
        values = super().processor
        return {**values, **values.get("vision_config", {})}

    def of_sound(self) -> dict[str, Any]:
        return {
            "projector_type": "dots3note_a",
            "projection_dim": self.config.need("hidden_size"),
            "embedding_length": self.audio.need("d_model"),
            "feed_forward_length": self.audio.need("encoder_ffn_dim"),
            "block_count": self.n_sound_layers,
            "attention.head_count": self.audio.need("encoder_attention_heads"),
            "attention.layer_norm_epsilon": 1e-6,
            "num_mel_bins": self.audio.need("num_mel_bins"),
        }

    def of_vision(self) -> dict[str, Any]:
        values = super().of_vision()
        merge = values.pop("projector.scale_factor")
        counts = self.vision.first("pyramid_num_routed")
        if not isinstance(counts, list) or not all(isinstance(n, int) for n in counts):
            raise self.vision.unsupported("pyramid_num_routed", "numbers of experts")
        return values | {
            "spatial_merge_size": merge,
            "expert_count_per_layer": [max(n, 0) for n in counts],
            "expert_used_count": self.vision.need("capacity_factor"),
        }

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if name.startswith("audio_tower.") and ".fc1." in name:
            for part, rows in zip(("gate", "up"), tensor.halves(), strict=True):
                yield self.names(name.replace(".fc1.", f".fc1_{part}.")), rows
        else:
            yield self.names(name), tensor


class Gemma4Conformer(SoundBeside, Gemma4):
    """Gemma 4's encoders of images and of sound."""

    sound_key = "audio_config"
    of_images = Gemma4
    prefixes = (*Gemma4.prefixes, "audio_tower.", "embed_audio.")
    types = {CONVOLUTION: GGMLType.F32, **Gemma4.types}
    renames: ClassVar[dict[str, str]] = {
        r"^audio_tower\.": "conformer.",
        r"^embed_audio\.": "model.embed_audio.",
        r"(per_dim_scale)$": r"\1.weight",
        **Gemma4.renames,
    }

    def of_sound(self) -> dict[str, Any]:
        width = self.audio.need("hidden_size")
        return {
            "projector_type": "gemma4a",
            "projection_dim": self.config.need("hidden_size"),
            "embedding_length": width,
            "feed_forward_length": 4 * width,
            "block_count": self.n_sound_layers,
            "attention.head_count": self.audio.need("num_attention_heads"),
            "attention.layer_norm_epsilon": float(self.audio.first("layer_norm_eps") or 1e-6),
            "num_mel_bins": int(self.audio.first("input_feat_size") or 128),
        }

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if name.endswith("per_dim_scale.weight"):
            yield self.names(name), tensor.map(lambda x: np.logaddexp(0, x).astype(np.float32), tensor.shape)
        elif name.endswith("depthwise_conv1d.weight"):
            yield self.names(name), tensor.reshape(tensor.shape[0], tensor.shape[2])
        else:
            yield from super().convert(name, tensor)


class Gemma3nConformer(SoundBeside, Gemma3n):
    """Gemma 3n's encoders of images and of sound."""

    sound_key = "audio_config"
    layers_key = "conf_num_hidden_layers"
    of_images = Gemma3n
    prefixes = (*Gemma3n.prefixes, "audio_tower.", "embed_audio.")
    types = {r"^a\.pre_encode\.out\.weight$": GGMLType.F16, CONVOLUTION: GGMLType.F32, **Gemma3n.types}
    renames: ClassVar[dict[str, str]] = {
        **Gemma3n.renames,
        r"^model\.audio_tower\.conformer\.": "conformer.layers.",
    }
    more_names: ClassVar[dict[str, str]] = {
        **Gemma3n.more_names,
        **{f"model.audio_tower.subsample_conv_projection.conv_{i}.norm": f"a.conv1d.{i}.norm" for i in range(2)},
    }  # which llama.cpp's converter does not know

    @classmethod
    def made_for(cls, folder: Folder) -> ProjectorConversion:
        has_sound = any("audio_tower." in name for name in folder.tensors)
        return super().made_for(folder) if has_sound else Gemma3n(folder)

    def count_layers(self) -> int:
        return Gemma3n.count_layers(self)

    def of_sound(self) -> dict[str, Any]:
        width = self.audio.need("hidden_size")
        return {
            "projector_type": "gemma3na",
            "projection_dim": self.config.need("hidden_size"),
            "embedding_length": width,
            "feed_forward_length": int(self.audio.first("intermediate_size") or 6144),
            "block_count": self.n_sound_layers,
            "attention.head_count": self.audio.need("conf_num_attention_heads"),
            "attention.layer_norm_epsilon": 1e-5,
            "num_mel_bins": self.audio.need("input_feat_size"),
        }


class NemotronOmni(SoundBeside, NemotronV2VL):
    """Nemotron Nano VL v2's encoder of images, and that of sounds of models that hear."""

    type_key = "vision.projector_type"
    sound_key = "sound_config"
    of_images = NemotronV2VL
    prefixes = (*NemotronV2VL.prefixes, "sound_encoder.", "sound_projection.")
    types = {r"^(mm\.)?a\..*(bias|norm|conv)": GGMLType.F32}
    unused = (*NemotronV2VL.unused, "num_batches")
    more_names: ClassVar[dict[str, str]] = {
        **NemotronV2VL.more_names,
        **{f"sound_encoder.encoder.subsampling.layers.{i}": f"a.conv1d.{i}" for i in (0, 2, 3, 5, 6)},
        "sound_encoder.encoder.subsampling.linear": "a.pre_encode.out",
        "sound_encoder.encoder.feature_extractor.featurizer.fb": "a.mel_filters",
        "sound_encoder.encoder.feature_extractor.featurizer.window": "a.window",
        "sound_projection.norm": "mm.a.norm_pre",
        "sound_projection.linear1": "mm.a.mlp.1",
        "sound_projection.linear2": "mm.a.mlp.2",
        **in_layers("sound_encoder.encoder.layers.{}.", "a.blk.{}.", {
            "norm_feed_forward1": "ffn_norm", "feed_forward1.linear1": "ffn_up", "feed_forward1.linear2": "ffn_down",
            "norm_feed_forward2": "ffn_norm_1", "feed_forward2.linear1": "ffn_up_1",
            "feed_forward2.linear2": "ffn_down_1", "norm_self_att": "ln1", "norm_out": "ln2",
            "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
            "self_attn.o_proj": "attn_out", "self_attn.relative_k_proj": "linear_pos",
            "self_attn.bias_u": "pos_bias_u", "self_attn.bias_v": "pos_bias_v", "norm_conv": "norm_conv",
            "conv.pointwise_conv1": "conv_pw1", "conv.pointwise_conv2": "conv_pw2", "conv.depthwise_conv": "conv_dw",
            "conv.norm": "conv_norm", "conv.norm.running_mean": "conv_norm_mean",
            "conv.norm.running_var": "conv_norm_var",
        }),
    }  # fmt: skip

    def of_sound(self) -> dict[str, Any]:
        return {
            "projector_type": "parakeet",
            "projection_dim": self.config.need("hidden_size"),
            "embedding_length": self.audio.need("hidden_size"),
            "feed_forward_length": self.audio.need("intermediate_size"),
            "block_count": self.n_sound_layers,
            "attention.head_count": self.audio.need("num_attention_heads"),
            "attention.layer_norm_epsilon": Conformer.NORM_EPSILON,
            "num_mel_bins": self.audio.need("num_mel_bins"),
            "subsampling_factor": self.audio.need("subsampling_factor"),
            "conv_kernel_size": self.audio.need("conv_kernel_size"),
        }

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if not name.startswith("sound_"):
            yield from super().convert(name, tensor)
            return
        if name.endswith("depthwise_conv.weight"):
            tensor = tensor.reshape(1, 1, tensor.shape[0], tensor.shape[2])
        elif "pointwise_conv" in name and name.endswith(".weight"):
            tensor = tensor.squeeze()
        elif name.endswith(".bias") and ("subsampling.layers" in name or "pointwise_conv" in name):
            tensor = tensor.reshape(1, tensor.shape[0], 1, 1)
        yield self.names(name), tensor


def positions(width: int) -> tuple[str, LazyTensor]:
    """Return the table of positions, which is computed when it is read: ``config.json`` may claim any width."""
    shape = N_POSITIONS, width
    return "a.position_embd.weight", LazyTensor(shape, GGMLType.F32, lambda: sinusoids(*shape))


def sinusoids(length: int, width: int) -> NDArray[np.float32]:
    """Return the positions ``[length, width]``: sines, and cosines behind them (Vaswani et al. 2017)."""
    scales = np.exp(-np.log(10000) / (width // 2 - 1) * np.arange(width // 2, dtype=np.float32))
    angles = np.arange(length, dtype=np.float32)[:, None] * scales.astype(np.float32)
    return np.concatenate([np.sin(angles), np.cos(angles)], 1).astype(np.float32)


class Stacked(Whisper):
    """An encoder several of whose rows become one."""

    def stack_factor(self) -> int:
        return self.config.need("stack_factor")

    def of_audio(self) -> dict[str, Any]:
        return super().of_audio() | {"projector.stack_factor": self.stack_factor()}


class MERaLiON(Stacked):
    """MERaLiON-2, with a Gemma 2 as its language model."""

    projector_type = "meralion"
    encoder_key = "speech_config"
    prefixes = ("speech_encoder.", "ln_speech.", "speech_audio_adapter.")
    renames: ClassVar[dict[str, str]] = {r"^speech_encoder\.": "audio_tower."}
    more_names: ClassVar[dict[str, str]] = {
        "ln_speech": "mm.a.norm_pre",
        "speech_audio_adapter.mlp_adapter.0": "mm.a.mlp.0",
        "speech_audio_adapter.gate_proj": "mm.a.mlp.1",
        "speech_audio_adapter.pool_proj": "mm.a.mlp.2",
        "speech_audio_adapter.out_proj": "mm.a.mlp.3",
    }

    def stack_factor(self) -> int:
        return int(self.config.first("speech_mlp_scale_factor") or 15)


class GLMASR(Stacked):
    """GLM-ASR as its authors store it. Its table of positions is not used."""

    projector_type = "glma"
    encoder_key = "whisper_config"
    prefixes = ("audio_encoder.",)
    renames: ClassVar[dict[str, str]] = {r"^audio_encoder\.whisper\.": "audio_tower."}
    more_names: ClassVar[dict[str, str]] = {
        "audio_encoder.layer_norm": "mm.a.norm_pre",
        "audio_encoder.adapting.0": "mm.a.mlp.1",
        "audio_encoder.adapting.2": "mm.a.mlp.2",
    }
    unused = ("audio_encoder.proj.",)
    TEXTS = "audio_encoder.audio_bos_eos_token."

    def stack_factor(self) -> int:
        return self.config.need("merge_factor")

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if name.startswith(self.TEXTS):
            yield "v.boi", tensor[0]
            yield "v.eoi", tensor[1]
        else:
            yield from super().convert(name, tensor)


class Conformer(Whisper):
    """A conformer, whose batch normalizations become factors and summands."""

    NORM_EPSILON = 1e-5
    unused = ("attention_dists", "num_batches_tracked")
    types = {r"\.conv_.*\.weight$": GGMLType.F32}

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if ".conv.batch_norm." not in name:
            yield self.names(name), tensor
        elif name.endswith(".weight"):
            yield from self._folded_norm(name.removesuffix(".weight"))

    def _folded_norm(self, name: str) -> Iterator[tuple[str, LazyTensor]]:
        """Yield the factors and summands of a batch normalization with its running mean and variance."""
        tensors = self.folder.tensors
        stored = next(key for key in tensors if key.endswith(f"{name}.weight")).removesuffix("weight")
        weight, bias, mean, variance = (
            tensors[stored + part] for part in ("weight", "bias", "running_mean", "running_var")
        )

        def factor(x: Any) -> Any:
            return x / np.sqrt(variance.read() + np.float32(self.NORM_EPSILON))

        yield self.names(f"{name}.weight"), weight.map(factor)
        yield self.names(f"{name}.bias"), bias.map(lambda x: x - mean.read() * factor(weight.read()))


class LFM2Audio(Conformer):
    """LFM2-Audio's encoder. Its parts that speak are left out."""

    projector_type = "lfm2a"
    encoder_key = "encoder"
    layer_keys = ("n_layers",)
    prefixes = ("conformer.", "audio_adapter.", "audio_embedding.")

    def of_audio(self) -> dict[str, Any]:
        width = self.audio.need("d_model")
        return {
            "projection_dim": self.projection_dim(),
            "embedding_length": width,
            "feed_forward_length": width,
            "block_count": self.n_layer,
            "attention.head_count": self.audio.need("n_heads"),
            "attention.layer_norm_epsilon": self.NORM_EPSILON,
            "num_mel_bins": self.audio.need("feat_in"),
        }

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if name.startswith("conformer.pre_encode.conv.") and name.endswith(".bias"):
            tensor = tensor.reshape(tensor.shape[0], 1, 1)
        elif name.endswith(("depthwise_conv.weight", "pointwise_conv1.weight", "pointwise_conv2.weight")):
            tensor = tensor.squeeze()
        yield from super().convert(name, tensor)


class GraniteSpeech(Conformer):
    """Granite Speech, whose language model has adapters in a file of their own."""

    projector_type = "granite_speech"
    encoder_key = "encoder_config"
    layer_keys = ("num_layers",)
    prefixes = ("encoder.", "projector.")
    joined = {".to_kv.": (".to_k.", ".to_v.")}

    def __init__(self, folder: Folder) -> None:
        super().__init__(folder)
        self.projector = self.config.section("projector_config")

    def of_audio(self) -> dict[str, Any]:
        width = self.audio.need("hidden_dim")
        return {
            "projection_dim": self.projection_dim(),
            "embedding_length": width,
            "feed_forward_length": width * self.audio.need("feedforward_mult"),
            "block_count": self.n_layer,
            "attention.head_count": self.audio.need("num_heads"),
            "attention.layer_norm_epsilon": self.NORM_EPSILON,
            "num_mel_bins": self.audio.need("input_dim"),
            "chunk_size": self.audio.need("context_size"),
            "conv_kernel_size": self.audio.need("conv_kernel_size"),
            "max_pos_emb": self.audio.need("max_pos_emb"),
            "projector.window_size": self.config.need("window_size"),
            "projector.downsample_rate": self.config.need("downsample_rate"),
            "projector.head_count": self.projector.need("num_attention_heads"),
        }

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if name.endswith(".rel_pos_emb.weight"):
            yield f"a.blk.{name.split('.')[2]}.attn_rel_pos_emb", tensor
        elif name.endswith(("up_conv.weight", "down_conv.weight", "depth_conv.conv.weight")):
            yield self.names(name), tensor.squeeze()
        else:
            yield from super().convert(name, tensor)


class GraniteSpeechPlus(GraniteSpeech):
    """Granite Speech whose projector reads several layers, side by side."""

    def of_audio(self) -> dict[str, Any]:
        layers = self.audio.first("cat_hidden_layers")
        return super().of_audio() | ({"feature_layer": list(layers)} if layers else {})


class Ultravox(Stacked):
    """Ultravox; its language model is another checkpoint."""

    projector_type = "ultravox"
    more_names: ClassVar[dict[str, str]] = {"audio.multi_modal_projector.ln_post": "mm.a.norm_post"}


class Voxtral(Stacked):
    projector_type = "voxtral"

    def stack_factor(self) -> int:
        return 4  # the checkpoint has it in the projector's shape alone
