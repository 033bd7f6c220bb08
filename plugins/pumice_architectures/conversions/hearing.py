"""Encoders of sounds and their projectors, as projector files (mmproj)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pumice.plugin.convert import MOST_LAYERS, ConvertError, Folder, GGMLType, HFConfig, LazyTensor, ProjectorConversion


class Whisper(ProjectorConversion):
    """Whisper's encoder, whose configuration is ``audio_config``."""

    prefixes = ("audio_tower.", "multi_modal_projector.")
    renames: ClassVar[dict[str, str]] = {r"^multi_modal_projector\.": "audio.multi_modal_projector."}

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.config = folder.config
        values = folder.config.get("audio_config")
        if not isinstance(values, dict):
            raise ConvertError(f"{folder.config.path}: 'audio_config' is missing; the model takes no sound")
        self.audio = HFConfig(folder.config.path, values)
        self.n_layer = self.audio.need("encoder_layers", "num_hidden_layers", most=MOST_LAYERS)

    def metadata(self) -> dict[str, Any]:
        audio = {f"audio.{key}": value for key, value in self.of_audio().items()}
        return {"has_audio_encoder": True, "projector_type": self.projector_type, **audio}

    def of_audio(self) -> dict[str, Any]:
        """Return the keys ``clip.audio.*`` without that prefix."""
        return {
            "projection_dim": self.config.need("hidden_size"),
            "embedding_length": self.audio.need("d_model", "hidden_size"),
            "feed_forward_length": self.audio.need("encoder_ffn_dim", "intermediate_size"),
            "block_count": self.n_layer,
            "attention.head_count": self.audio.need("encoder_attention_heads", "num_attention_heads"),
            "attention.layer_norm_epsilon": float(self.audio.first("layer_norm_eps") or 1e-5),
            "num_mel_bins": self.audio.need("num_mel_bins"),
        }

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if name.endswith(("conv1.bias", "conv2.bias")):
            tensor = tensor.reshape(tensor.shape[0], 1)
        yield self.names(name), tensor

    def forced_type(self, name: str, type: GGMLType) -> GGMLType | None:
        return GGMLType.F16 if ".conv1d." in name and name.endswith(".weight") else None


class Qwen2Audio(Whisper):
    projector_type = "qwen2a"


class AudioFlamingo3(Whisper):
    """Audio Flamingo 3, whose convolutions stay float32, since it was trained in bfloat16."""

    projector_type = "musicflamingo"

    def of_audio(self) -> dict[str, Any]:
        text = self.config.first("text_config")
        width = text.get("hidden_size") if isinstance(text, dict) else None
        return super().of_audio() | ({"projection_dim": width} if isinstance(width, int) else {})

    def forced_type(self, name: str, type: GGMLType) -> GGMLType | None:
        return GGMLType.F32 if ".conv1d." in name and name.endswith(".weight") else None


class Qwen3ASRAudio(Whisper):
    """Qwen3-ASR, as its authors or as transformers store it. Positions are computed."""

    projector_type = "qwen3a"
    renames: ClassVar[dict[str, str]] = {
        r"^thinker\.": "",
        r"^multi_modal_projector\.linear_": "audio_tower.proj",
    }

    def __init__(self, folder: Folder) -> None:
        thinker = folder.config.first("thinker_config")
        if isinstance(thinker, dict):
            folder.config = folder.config | thinker
        super().__init__(folder)

    def metadata(self) -> dict[str, Any]:
        values = super().metadata()
        return {"audio.projector_type" if key == "projector_type" else key: value for key, value in values.items()}

    def of_audio(self) -> dict[str, Any]:
        text = self.config.first("text_config")
        width = text.get("hidden_size") if isinstance(text, dict) else None
        return super().of_audio() | ({"projection_dim": width} if isinstance(width, int) else {})

    def rename(self, name: str) -> str | None:
        return super().rename(name.removeprefix("model.").removeprefix("thinker."))

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if ".conv2d" in name and name.endswith(".bias"):
            tensor = tensor.reshape(tensor.shape[0], 1, 1)
        yield self.names(name), tensor

    def forced_type(self, name: str, type: GGMLType) -> GGMLType | None:
        return GGMLType.F16 if ".conv" in name and name.endswith(".weight") else None

    def more_tensors(self) -> Iterator[tuple[str, LazyTensor]]:
        yield "a.position_embd.weight", LazyTensor.of(sinusoids(1500, self.audio.need("d_model", "hidden_size")))


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


class Ultravox(Stacked):
    """Ultravox; its language model is another checkpoint."""

    projector_type = "ultravox"
    more_names: ClassVar[dict[str, str]] = {"audio.multi_modal_projector.ln_post": "mm.a.norm_post"}

    def of_audio(self) -> dict[str, Any]:
        text = self.folder.config.get("text_config")
        width = text.get("hidden_size") if isinstance(text, dict) else None
        return super().of_audio() | ({"projection_dim": width} if isinstance(width, int) else {})


class Voxtral(Stacked):
    projector_type = "voxtral"

    def stack_factor(self) -> int:
        return 4  # the checkpoint has it in the projector's shape alone
