"""Speech models beside language models, as projector files (mmproj)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pumice.plugin.convert import ConvertError, Folder, GGMLType, HFConfig, LazyTensor, ProjectorConversion
from pumice_architectures.conversions.sound import PocketTTS

_HEAD = 64  # values of a head of the codec's transformers; cannot be inferred from tensors
_TOWER = "mimi.{}_transformer.transformer.layers."
_NORMS = {
    "norm1": "ln1", "norm2": "ln2", "self_attn.out_proj": "attn_out", "linear1": "ffn_up", "linear2": "ffn_down",
    "layer_scale_1.scale": "ls1.weight", "layer_scale_2.scale": "ls2.weight",
}  # fmt: skip
_FLOW = {
    "input_proj": "input_proj", "cond_embed": "cond_embd", "final_layer.linear": "final.proj",
    "final_layer.adaLN_modulation.1": "final.ada", "time_embed.*.freqs": "time.*.freqs",
    "time_embed.*.mlp.0": "time.*.up", "time_embed.*.mlp.2": "time.*.down", "time_embed.*.mlp.3.alpha": "time.*.norm",
    "res_blocks.*.in_ln": "blk.*.norm", "res_blocks.*.mlp.0": "blk.*.up", "res_blocks.*.mlp.2": "blk.*.down",
    "res_blocks.*.adaLN_modulation.1": "blk.*.ada",
}  # fmt: skip
_WHOLE = {
    "flow_lm.speaker_proj_weight": "a.speaker_proj.weight",
    "flow_lm.input_linear.weight": "a.gen.input_linear.weight",
    "flow_lm.emb_mean": "a.gen.emb_mean",
    "flow_lm.emb_std": "a.gen.emb_std",
    "flow_lm.out_eos.weight": "a.gen.out_eos.weight",
    "flow_lm.out_eos.bias": "a.gen.out_eos.bias",
    "mimi.downsample.conv.conv.weight": "a.downsample.conv.weight",
    "mimi.upsample.convtr.convtr.weight": "a.gen.wav.upsample.weight",
    "mimi.quantizer.output_proj.weight": "a.gen.wav.quant_out.weight",
}
_N_STAGES = 3  # of the codec's convolutions


def _pattern(name: str) -> str:
    return re.escape(name).replace(r"\*", r"(\d+)")


class PocketTTSSpeech(ProjectorConversion):
    """The flow network and the codec of pocket-tts. Its folder has no configuration."""

    types = {r"(\.seanet\..*|^a\.downsample\.conv|^a\.gen\.wav\.upsample)\.weight$": GGMLType.F16}
    NUMBERED = {_pattern(f"flow_lm.flow_net.{old}"): f"a.gen.flow.{new}" for old, new in _FLOW.items()} | {
        _pattern(_TOWER.format(side) + f"*.{old}"): f"{prefix}blk.*.{new}"
        for side, prefix in (("encoder", "a."), ("decoder", "a.gen.wav.tfm."))
        for old, new in _NORMS.items()
    }

    @classmethod
    def recognises(cls, folder: Folder) -> bool:
        return PocketTTS.recognises(folder)

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        folder.config = self.config = HFConfig(folder.path, {})
        self.shapes = {name: tensor.shape for name, tensor in folder.tensors.items()}
        if "flow_lm.flow_net.time_embed.1.freqs" not in self.shapes:
            raise ConvertError(
                f"{folder.path}: the flow network has no two times (flow_lm.flow_net.time_embed); only models trained "
                "by Lagrangian self-distillation are supported"
            )
        self.n_layer = sum(
            bool(re.fullmatch(_pattern(_TOWER.format("decoder") + "*.norm1.weight"), name)) for name in self.shapes
        )

    def metadata(self) -> dict[str, Any]:
        width = self.shapes["flow_lm.input_linear.weight"][0]
        n_ff, n_embd = self.shapes[f"{_TOWER.format('decoder')}0.linear1.weight"]
        tower = {
            "projection_dim": width, "embedding_length": n_embd, "feed_forward_length": n_ff,
            "block_count": self.n_layer, "attention.head_count": n_embd // _HEAD,
            "attention.layer_norm_epsilon": 1e-5,
        }  # fmt: skip
        hears = "flow_lm.speaker_proj_weight" in self.shapes
        voice = {f"audio.{key}": value for key, value in {**tower, "num_mel_bins": 1}.items()}
        return {
            **({"has_audio_encoder": True, "audio.projector_type": "pockettts_spkenc", **voice} if hears else {}),
            "has_gen_audio_encoder": True,
            "gen.audio.projector_type": "pockettts_gen",
            **{f"gen.audio.{key}": value for key, value in tower.items()},
            "gen.audio.model_variant": self.folder.path.resolve().name,
        }

    def rename(self, name: str) -> str | None:
        if name in _WHOLE:
            return name
        if name.startswith(("flow_lm.flow_net.", "mimi.encoder", "mimi.decoder")):
            return name
        return None

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if name in _WHOLE:
            is_matrix = name == "mimi.quantizer.output_proj.weight"
            yield _WHOLE[name], tensor.reshape(*tensor.shape[:2]) if is_matrix else tensor
            return
        if ".self_attn.in_proj." in name:
            prefix = "a.gen.wav.tfm." if name.startswith("mimi.decoder") else "a."
            layer = name.split(".layers.")[1].split(".")[0]
            for part, rows in zip("qkv", tensor.split(*(3 * [tensor.shape[0] // 3])), strict=True):
                yield f"{prefix}blk.{layer}.attn_{part}.weight", rows
            return
        yield self._named(name), tensor

    def _named(self, name: str) -> str:
        for pattern, new in self.NUMBERED.items():
            if match := re.fullmatch(rf"{pattern}(\.weight|\.bias)?", name):
                *numbers, suffix = match.groups()
                return new.replace("*", numbers[0]) + (suffix or "") if numbers else new + (suffix or "")
        if match := re.fullmatch(r"mimi\.(en|de)coder\.model\.(\d+)\.(?:block\.(\d+)\.)?\w+\.(weight|bias)", name):
            return f"{'a' if match[1] == 'en' else 'a.gen.wav'}.seanet.{_stage(match)}.{match[4]}"
        raise ConvertError(f"{self.folder.path}: unknown tensor {name!r} of pocket-tts")


def _stage(match: re.Match[str]) -> str:
    """Return the name of a convolution by its number among the modules of the encoder or the decoder."""
    number, inner = int(match[2]), match[3]
    if number in (0, 3 * _N_STAGES + 2):
        return "conv_out" if number else "conv_in"
    stage = (number - 1) // 3
    return f"blk.{stage}." + ({"1": "res_conv1", "3": "res_conv2"}[inner] if inner else "scale_conv")
