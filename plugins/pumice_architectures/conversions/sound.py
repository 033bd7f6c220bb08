"""Language models of speech synthesizers: Qwen3-TTS, pocket-tts, WavTokenizer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from pumice.plugin.convert import (
    Conversion,
    Folder,
    HFConfig,
    LazyTensor,
    concatenate,
    in_layers,
    layer_of,
)
from pumice_architectures.conversions.hybrid import LFM2
from pumice_architectures.conversions.qwen import Qwen3

N_SUPPRESSED = 1024  # last tokens, which the talker never generates, except the end token
ACTIVATIONS: Mapping[str, Callable[[Any], Any]] = {
    "silu": lambda x: x / (1 + np.exp(-x)),
    "relu": lambda x: np.maximum(x, 0),
}


class Qwen3TTS(Qwen3):
    """The talker of Qwen3-TTS: projected text embeddings, followed by those of audio codes."""

    architecture = "qwen3tts"
    named_as = "qwen3"
    renames = {}
    more_names = {"codec_head": "output"}
    EMBEDDINGS = ("model.text_embedding.", "model.codec_embedding.", "text_projection.")

    def __init__(self, folder: Folder) -> None:
        folder.config |= folder.config.section("talker_config")
        super().__init__(folder)
        self.n_text, self.n_sound = self.config.need("text_vocab_size"), self.config.need("vocab_size")

    def n_vocab(self, stored: int) -> int:
        return self.n_text + self.n_sound

    def steering_tokens(self) -> dict[int, str]:
        names = [f"codec_{i}" for i in range(self.n_sound)]
        for key, value in self.config["talker_config"].items():
            if key.endswith("_id"):
                named = {"": value} if isinstance(value, int) else value if isinstance(value, dict) else {}
                for part, id in named.items():
                    names[id] = key.removesuffix("_id") + (part and f"_{part}")
        return {self.n_text + i: f"<|{name}|>" for i, name in enumerate(names)}

    def other_metadata(self) -> dict[str, Any]:
        end, n = self.n_text + self.config.need("codec_eos_token_id"), self.n_text + self.n_sound
        return {
            "tokenizer.ggml.suppress_tokens": [id for id in range(n - N_SUPPRESSED, n) if id != end],
            "tokenizer.ggml.eos_token_id": end,
            "tokenizer.ggml.add_eos_token": False,
        }

    def rename(self, name: str) -> str | None:
        kept = name.startswith("talker.") and not name.startswith("talker.code_predictor.")
        name = name.removeprefix("talker.")
        return super().rename(name) if kept and not name.startswith(self.EMBEDDINGS) else None

    def more_tensors(self) -> Iterator[tuple[str, LazyTensor]]:
        tensors, activation = self.folder.tensors, self.config.first("hidden_act")
        if activation not in ACTIVATIONS:
            raise self.config.unsupported("hidden_act", "'silu' or 'relu'")
        text, sound = (tensors[f"talker.model.{kind}_embedding.weight"] for kind in ("text", "codec"))
        parts = [f"{layer}.{side}" for layer in ("linear_fc1", "linear_fc2") for side in ("weight", "bias")]

        def project(rows: Any) -> Any:
            w1, b1, w2, b2 = (tensors[f"talker.text_projection.{part}"].read() for part in parts)
            return ACTIVATIONS[activation](rows @ w1.T + b1) @ w2.T + b2

        width = tensors["talker.text_projection.linear_fc2.bias"].shape[0]
        yield "token_embd.weight", concatenate([text.map(project, (text.shape[0], width)), sound])


class PocketTTS(Conversion):
    """The backbone of pocket-tts. Its folder has no configuration; all sizes follow from the shapes of tensors."""

    architecture = "pockettts"
    named_as = "starcoder2"
    vocabularies = ["unigram"]
    HEAD = 64  # values; cannot be inferred from tensors
    N_CTX = 4096  # tokens; the model has no limit
    FIRST, VOICE, INPUT = "flow_lm.bos_emb", "flow_lm.bos_before_voice", "flow_lm.input_linear.weight"
    EMBEDDINGS = "flow_lm.conditioner.embed.weight"
    LAYER = "flow_lm.transformer.layers."
    joined = {"self_attn.in_proj": ("self_attn.q", "self_attn.k", "self_attn.v")}
    more_names = {"flow_lm.out_norm": "output_norm"} | in_layers(f"{LAYER}{{}}.", "blk.{}.", {
        "norm1": "attn_norm", "norm2": "ffn_norm", "self_attn.out_proj": "attn_output", "linear1": "ffn_up",
        "linear2": "ffn_down", "self_attn.q": "attn_q", "self_attn.k": "attn_k", "self_attn.v": "attn_v",
    })  # fmt: skip

    @classmethod
    def recognises(cls, folder: Folder) -> bool:
        return cls.FIRST in folder.tensors

    def __init__(self, folder: Folder) -> None:
        shapes = {name: tensor.shape for name, tensor in folder.tensors.items()}
        (n_vocab, n_embd), n_ff = shapes[self.EMBEDDINGS], shapes[f"{self.LAYER}0.linear1.weight"][0]
        folder.config = HFConfig(folder.path, {
            "num_hidden_layers": 1 + max(layer_of(name) for name in shapes if name.startswith(self.LAYER)),
            "hidden_size": n_embd, "intermediate_size": n_ff, "num_attention_heads": n_embd // self.HEAD,
            "max_position_embeddings": self.N_CTX, "vocab_size": n_vocab + 1 + (self.VOICE in shapes),
            "rope_theta": 10000.0, "layer_norm_eps": 1e-5,
        })  # fmt: skip
        super().__init__(folder)

    def steering_tokens(self) -> dict[int, str]:
        names = ["pad", *(["bos_before_voice"] if self.VOICE in self.folder.tensors else []), "audio_bos"]
        first = self.config.need("vocab_size") - len(names)
        return {first + i: f"<|{name}|>" for i, name in enumerate(names)}

    def other_metadata(self) -> dict[str, Any]:
        model = self.folder.optional_json("tokenizer.json").get("model")
        unknown = model.get("unk_id") if isinstance(model, dict) else None
        unknown_id = {"tokenizer.ggml.unknown_token_id": unknown} if isinstance(unknown, int) else {}
        return {"tokenizer.ggml.add_bos_token": False, "tokenizer.ggml.add_eos_token": False, **unknown_id}

    def rename(self, name: str) -> str | None:
        return name if name.startswith((self.LAYER, "flow_lm.out_norm.", self.EMBEDDINGS)) else None

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if name == self.EMBEDDINGS:
            yield "token_embd.weight", concatenate([tensor, *self._learned(tensor.shape[1])])
        else:
            yield from super().convert(name, tensor)

    def _learned(self, width: int) -> Iterator[LazyTensor]:
        """Yield learned vectors that are not token embeddings, as rows behind the table."""
        tensors = self.folder.tensors
        if self.VOICE in tensors:
            yield tensors[self.VOICE].reshape(1, width)
        matrix = tensors[self.INPUT]
        yield tensors[self.FIRST].map(lambda x: x.reshape(1, -1) @ matrix.read().T, (1, width))


class WavTokenizer(Conversion):
    """The decoder of WavTokenizer."""

    architecture = "wavtokenizer-dec"
    vocabularies = ["none"]
    integers = {
        "vocab_size": "vocab_size",
        "features_length": "n_embd_features",
        "feed_forward_length": "n_ff",
        "attention.group_norm_groups": "group_norm_groups",
    }
    numbers = {"attention.group_norm_epsilon": "group_norm_epsilon"}
    constants = {"attention.causal": False}
    unused = ("codebook.cluster_size", "codebook.embed_avg", "codebook.inited")
    float32 = {f"posnet.{i}.norm{j}" for i in range(6) for j in (1, 2)}

    def metadata(self) -> dict[str, Any]:
        parts = {name: self.config.section(name) for name in ("posnet", "convnext")}
        return super().metadata() | {
            f"{name}.{key}": part.need(said)
            for name, part in parts.items()
            for key, said in (("embedding_length", "n_embd"), ("block_count", "n_layer"))
        }


class LFM25AudioTokenizer(LFM2):
    """The audio decoder of LFM 2.5."""

    vocabularies = ["none"]
    dropped = ("istft.window", "emb.emb")
    renames = LFM2.renames | {"^lin": "dense_2_out"}
    integers = LFM2.integers | {"attention.sliding_window": "sliding_window", "embedding_length_out": "output_size"}
