"""MiMo-V2.5's encoders of images and of sound, as a projector file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, ClassVar

from pumice.plugin.convert import (
    MOST_LAYERS,
    ConvertError,
    Folder,
    GGMLType,
    HFConfig,
    LazyTensor,
    ProjectorConversion,
    in_layers,
    stack,
)
from pumice_architectures.conversions.vision_more import MiMoVL

CONFIG, WEIGHTS = "audio_tokenizer/config.json", "audio_tokenizer/model.safetensors"
BOOK = re.compile(r"encoder\.quantizer\.vq\.layers\.(\d+)\._codebook\.(\w+)")
EMBEDDINGS = re.compile(r"speech_embeddings\.(\d+)\.weight")
TOKENIZER = {
    "encoder.conv1": "a.conv1d.1",
    "encoder.conv2": "a.conv1d.2",
    "encoder.layer_norm": "a.post_ln",
    "encoder.down_sample_layer.0": "a.downsample.conv",
    "encoder.down_sample_norm": "a.downsample.norm",
    **in_layers("encoder.layers.{}.", "a.blk.{}.", {
        "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
        "self_attn.out_proj": "attn_out", "self_attn_layer_norm": "ln1", "final_layer_norm": "ln2",
        "fc1": "ffn_up", "fc2": "ffn_down",
    }),
}  # fmt: skip
LOCAL = "audio_encoder.input_local_transformer."
ENCODER = {
    f"{LOCAL}norm": "mm.a.local_norm",
    "audio_encoder.projection.mlp.0": "mm.a.mlp.1",
    "audio_encoder.projection.mlp.2": "mm.a.mlp.2",
    **in_layers(f"{LOCAL}layers.{{}}.", "mm.a.local_blk.{}.", {
        **{f"self_attn.{part}_proj": f"attn_{part}" for part in "qkv"}, "self_attn.o_proj": "attn_out",
        **{f"mlp.{part}_proj": f"ffn_{part}" for part in ("gate", "up", "down")}, "input_layernorm": "ln1",
        "post_attention_layernorm": "ln2",
    }),
}  # fmt: skip


class MiMoSound(MiMoVL):
    """The encoder of sound is in a folder of its own, but for its last part."""

    prefixes = (*MiMoVL.prefixes, "audio_encoder.")
    types = {
        r"^(a\.conv1d\..*|a\.rvq\.codebook\.|mm\.a\.code_embd\.|a\.downsample\.conv\.)weight$": GGMLType.F32,
    }
    more_names: ClassVar[dict[str, str]] = {**MiMoVL.more_names, **TOKENIZER, **ENCODER}

    @classmethod
    def made_for(cls, folder: Folder) -> ProjectorConversion:
        hears = isinstance(folder.config.get("audio_config"), dict) and folder.has(CONFIG)
        return cls(folder) if hears else MiMoVL(folder)

    def __init__(self, folder: Folder) -> None:
        super().__init__(folder)
        self.tokenizer = HFConfig(folder.path / CONFIG, folder.json(CONFIG))
        self.audio = self.config.section("audio_config")
        self.n_sound_layers = self.tokenizer.need("encoder_layers", most=MOST_LAYERS)
        n_local = self.audio.need("input_local_layers", most=MOST_LAYERS)
        self.n_layer = max(self.n_layer, self.n_sound_layers, n_local)  # for names of all
        self.sound = folder.tensors_of(WEIGHTS)
        self.books = _numbered(BOOK, {name: x for name, x in self.sound.items() if name.endswith(".embed")})

    def of_vision(self) -> dict[str, Any]:
        n_layer, self.n_layer = self.n_layer, self.count_layers()
        values = super().of_vision()
        self.n_layer = n_layer
        return values

    def metadata(self) -> dict[str, Any]:
        c, n_layer = self.tokenizer, self.n_sound_layers
        window, period = c.first("encoder_attn_window_size"), int(c.first("swa_per_block") or 1)
        if not isinstance(window, list) or not window or not isinstance(window[0], int):
            raise c.unsupported("encoder_attn_window_size", "a list of sizes")
        slides = [bool(c.first("hybrid_attention")) and i % period < period - 1 for i in range(n_layer)]
        keys = {
            "projector_type": "mimo_audio",
            "projection_dim": self.config.need("hidden_size"),
            "embedding_length": c.need("d_model"),
            "feed_forward_length": c.need("encoder_ffn_dim"),
            "block_count": n_layer,
            "attention.head_count": c.need("encoder_attention_heads"),
            "attention.layer_norm_epsilon": float(c.first("layer_norm_eps") or 1e-5),
            "num_mel_bins": c.need("n_mels"),
            "rvq.num_quantizers": len(self.books),
            "rvq.codebook_size": [book.shape[0] for book in self.books],
            "wa_pattern_mode": [0 if slides_here else -1 for slides_here in slides],
            "window_size": window[0],
            "local_block_count": self.audio.need("input_local_layers"),
            "local_group_size": self.audio.need("group_size"),
        }
        return super().metadata() | {"has_audio_encoder": True} | {f"audio.{key}": keys[key] for key in keys}

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if name.startswith("audio_encoder."):
            yield self.names(name), tensor
        else:
            yield from super().convert(name, tensor)

    def more_tensors(self) -> Iterator[tuple[str, LazyTensor]]:
        for name, tensor in self.sound.items():
            if name.startswith("decoder.") or BOOK.fullmatch(name):
                continue
            is_bias = name in ("encoder.conv1.bias", "encoder.conv2.bias")
            yield self.names(name), tensor.reshape(tensor.shape[0], 1) if is_bias else tensor
        longest = max(book.shape[0] for book in self.books)
        yield "a.rvq.codebook.weight", stack([_padded(book, longest) for book in self.books])
        if embeddings := _numbered(EMBEDDINGS, self.folder.tensors):
            n = self.audio.need("audio_channels", most=len(embeddings))
            yield "mm.a.code_embd.weight", stack(embeddings[:n])


def _numbered(pattern: re.Pattern[str], tensors: dict[str, LazyTensor]) -> list[LazyTensor]:
    """Return the tensors whose names match, by the number in it. Raises ConvertError if one is missing."""
    numbered = {int(match[1]): x for name, x in tensors.items() if (match := pattern.fullmatch(name))}
    if sorted(numbered) != list(range(len(numbered))):
        raise ConvertError(f"tensors {pattern.pattern!r}: some of {max(numbered) + 1} are missing")
    return [numbered[i] for i in range(len(numbered))]


def _padded(book: LazyTensor, n: int) -> LazyTensor:
    """Return a book with empty vectors behind its own."""
    import numpy as np

    more = n - book.shape[0]
    return book.map(lambda x: np.pad(x, ((0, more), (0, 0))), (n, book.shape[1])) if more else book
