"""The speech model of Qwen3-TTS beside its language model, as a projector file (mmproj)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from pumice.plugin.convert import ConvertError, Folder, GGMLType, LazyTensor, ProjectorConversion, stack

N_OTHERS = 15  # codes of a frame behind the first
N_BLOCKS, VOICE_WIDTH, N_MELS = 3, 1536, 128  # of the encoder of voices; it has no attention
CODEC = "speech_tokenizer"
WEIGHTS, CODEC_CONFIG = f"{CODEC}/model.safetensors", f"{CODEC}/config.json"
EPSILON, SMALLEST_USAGE = 1e-9, 1e-5

_LAYER = {
    "input_layernorm": "ln1", "post_attention_layernorm": "ln2", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_out",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "self_attn_layer_scale": "ls1", "mlp_layer_scale": "ls2",
}  # fmt: skip
_MODEL = {
    "talker.model.codec_embedding": "a.gen.code.out_embd",
    "talker.code_predictor.model.norm": "a.gen.code.output_norm",
    "talker.code_predictor.small_to_mtp_projection": "a.gen.code.proj_in",
    **{f"talker.code_predictor.model.layers.*.{old}": f"a.gen.code.blk.*.{new}" for old, new in _LAYER.items()},
    "speaker_encoder.blocks.*.conv": "a.conv1d.*",
    "speaker_encoder.blocks.*.tdnn1.conv": "a.blk.*.conv_pw1",
    "speaker_encoder.blocks.*.tdnn2.conv": "a.blk.*.conv_pw2",
    "speaker_encoder.blocks.*.se_block.conv1": "a.blk.*.se_conv1",
    "speaker_encoder.blocks.*.se_block.conv2": "a.blk.*.se_conv2",
    "speaker_encoder.blocks.*.res2net_block.blocks.*.conv": "a.blk.*.res2.*",
    "speaker_encoder.mfa.conv": "a.conv_out",
    "speaker_encoder.asp.conv": "a.asp_attn",
    "speaker_encoder.asp.tdnn.conv": "a.asp_tdnn",
    "speaker_encoder.fc": "mm.a.fc",
}
_DECODER = {
    "pre_conv.conv": "pre_conv",
    "pre_transformer.input_proj": "tfm.in_proj",
    "pre_transformer.output_proj": "tfm.out_proj",
    "pre_transformer.norm": "tfm.output_norm",
    **{f"pre_transformer.layers.*.{old}": f"tfm.blk.*.{new}" for old, new in _LAYER.items()},
    "upsample.*.0.conv": "up.blk.*.conv",
    "upsample.*.1.dwconv.conv": "up.blk.*.dwconv",
    "upsample.*.1.norm": "up.blk.*.norm",
    "upsample.*.1.pwconv1": "up.blk.*.pw1",
    "upsample.*.1.pwconv2": "up.blk.*.pw2",
    "quantizer.rvq_first.input_proj": "quant.first.in_proj",
    "quantizer.rvq_first.output_proj": "quant.first.out_proj",
    "quantizer.rvq_rest.input_proj": "quant.rest.in_proj",
    "quantizer.rvq_rest.output_proj": "quant.rest.out_proj",
}
_KERNELS = r"pre_conv|dac\.entry|dac\.post_conv|up\.blk\.\d+\.dwconv|dac\..*\.conv[12]"
_TYPES = {
    r"^a\.gen\.(wav\.(up|dac)\.blk\.\d+\.conv|code\.blk\.\d+\.ffn_down)\.weight$": GGMLType.F32,
    rf"^a\.gen\.wav\.({_KERNELS})\.weight$": GGMLType.F16,
}


class Qwen3TTSSpeech(ProjectorConversion):
    """The predictor of codes, the codec's decoder and the encoder of voices."""

    types = _TYPES

    def __init__(self, folder: Folder) -> None:
        self.folder, self.config = folder, folder.config
        self.talker = self.config.section("talker_config")
        self.predictor = self.talker.section("code_predictor_config")
        if not folder.has(WEIGHTS):
            raise ConvertError(f"{folder.path / WEIGHTS}: the file is missing; it has the codec")
        self.n_layer = self.predictor.need("num_hidden_layers")
        self.hears = any(name.startswith("speaker_encoder.") for name in folder.tensors)

    def metadata(self) -> dict[str, Any]:
        width = self.talker.need("hidden_size")
        voice = {
            "projection_dim": width, "num_mel_bins": N_MELS, "block_count": N_BLOCKS,
            "embedding_length": VOICE_WIDTH, "attention.head_count": 1, "feed_forward_length": VOICE_WIDTH,
            "attention.layer_norm_epsilon": 1e-5,
        }  # fmt: skip
        code = self.predictor
        speech = {
            "projection_dim": width, "embedding_length": code.need("hidden_size"),
            "feed_forward_length": code.need("intermediate_size"), "block_count": self.n_layer,
            "attention.head_count": code.need("num_attention_heads"),
            "attention.head_count_kv": code.need("num_key_value_heads"),
            "attention.layer_norm_epsilon": float(code.first("rms_norm_eps") or 1e-6),
        }  # fmt: skip
        heard = {f"audio.{key}": value for key, value in voice.items()} if self.hears else {}
        return {
            **({"has_audio_encoder": True, "audio.projector_type": "qwen3tts_spkenc", **heard} if self.hears else {}),
            "has_gen_audio_encoder": True,
            "gen.audio.projector_type": "qwen3tts_gen",
            **{f"gen.audio.{key}": value for key, value in speech.items()},
        }

    def rename(self, name: str) -> str | None:
        return name if _renamed(name, _MODEL) else None

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        yield _renamed(name, _MODEL), tensor

    def more_tensors(self) -> Iterator[tuple[str, LazyTensor]]:
        tensors = self.folder.tensors
        for old, new in (("model.codec_embedding", "embd"), ("lm_head", "head")):
            names = [f"talker.code_predictor.{old}.{i}.weight" for i in range(N_OTHERS)]
            yield f"a.gen.code.{new}.weight", stack([self._need(tensors, name) for name in names])
        codec = {
            name.removeprefix("decoder."): tensor
            for name, tensor in self.folder.tensors_of(WEIGHTS).items()
            if name.startswith("decoder.")
        }
        for part, n in (("first", 1), ("rest", N_OTHERS)):
            books = [self._book(codec, f"quantizer.rvq_{part}.vq.layers.{i}._codebook.") for i in range(n)]
            yield f"a.gen.wav.quant.{part}.codebook.weight", stack(books) if n > 1 else books[0]
        last = max(int(name.split(".")[1]) for name in codec if name.startswith("decoder."))
        for name, tensor in codec.items():
            yield from _of_codec(name, tensor, last)

    def _need(self, tensors: Mapping[str, LazyTensor], name: str) -> LazyTensor:
        if name not in tensors:
            raise ConvertError(f"{self.folder.path}: tensor {name!r} is missing")
        return tensors[name]

    def _book(self, codec: Mapping[str, LazyTensor], prefix: str) -> LazyTensor:
        """Return a codebook, which is stored as sums of what its entries were used for, and how often."""
        usage = self._need(codec, f"{prefix}cluster_usage")
        sums = self._need(codec, f"{prefix}embedding_sum")
        return sums.map(lambda x: x / np.maximum(usage.read(), SMALLEST_USAGE)[:, None])


def _of_codec(name: str, tensor: LazyTensor, last: int) -> Iterator[tuple[str, LazyTensor]]:
    """Yield a tensor of the codec's decoder; ``last``: the number of its last convolution."""
    if new := _renamed(name.replace(".scale", ".weight"), _DECODER):
        yield f"a.gen.wav.{new}", tensor.squeeze() if ".quant." in f".{new}" else tensor
    elif match := re.fullmatch(r"upsample\.(\d+)\.1\.gamma", name):
        yield f"a.gen.wav.up.blk.{match[1]}.gamma", tensor
    elif match := re.fullmatch(r"decoder\.(\d+)\.(.+\.|)(alpha|beta|weight|bias)", name):
        factor = {"alpha": _exp, "beta": _inverse_exp}.get(match[3])
        stage = _stage(int(match[1]), match[2], last)
        yield f"a.gen.wav.dac.{stage}.{match[3]}", tensor.map(factor) if factor else tensor


def _exp(x: Any) -> Any:
    return np.exp(x)


def _inverse_exp(x: Any) -> Any:
    return 1 / (np.exp(x) + np.float32(EPSILON))


def _stage(number: int, inner: str, last: int) -> str:
    """Return the name of a module of the codec's last stage by its number and its name within the block."""
    if number in (0, last - 1, last):
        return {0: "entry", last - 1: "post_snake", last: "post_conv"}[number]
    _, part, *names = inner.rstrip(".").split(".")
    blk = f"blk.{number - 1}"
    if part in ("0", "1"):
        return f"{blk}.{'conv' if part == '1' else 'snake'}"
    return f"{blk}.res.{int(part) - 2}.{names[0]}"


def _renamed(name: str, table: Mapping[str, str]) -> str:
    """Return the new name of a tensor, whose numbers stand for the ``*`` of a pattern; empty for an unknown one."""
    stem, _, suffix = name.rpartition(".")
    for pattern, new in table.items():
        if match := re.fullmatch(re.escape(pattern).replace(r"\*", r"(\d+)"), stem):
            for number in match.groups():
                new = new.replace("*", number, 1)
            return f"{new}.{suffix}"
    return ""
