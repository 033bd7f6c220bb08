"""Whisper, as transformers or CTranslate2 (faster-whisper) store it: encoder and decoder in one file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from pumice.plugin.convert import MOST_LAYERS, Conversion, ConvertError, Folder, GGMLType, LazyTensor, in_layers
from pumice.plugin.unstable import SOUND_WINDOW

ENGLISH_ONLY = 51864  # tokens of models that know English alone
TIMES = [0.02 * i for i in range(1501)]  # seconds that tokens stand for
PARTS = {
    "self_attn_layer_norm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.out_proj": "attn_o", "encoder_attn_layer_norm": "cross_attn_norm",
    "encoder_attn.q_proj": "cross_attn_q", "encoder_attn.k_proj": "cross_attn_k", "encoder_attn.v_proj": "cross_attn_v",
    "encoder_attn.out_proj": "cross_attn_o", "final_layer_norm": "ffn_norm", "fc1": "ffn_up", "fc2": "ffn_down",
}  # fmt: skip
HEARING = {"self_attn_layer_norm": "ln1", "self_attn.out_proj": "attn_out", "final_layer_norm": "ln2"}


class Whisper(Conversion):
    """Whisper and Distil-Whisper."""

    architecture = "whisper"
    hidden_act = "gelu"
    needed: ClassVar[Mapping[str, Any]] = {"scale_embedding": False, "tie_word_embeddings": True}
    named_as = "t5"
    dropped = ("proj_out.",)  # the embeddings' matrix
    types = {r"^a\.position_embd\.weight$": GGMLType.F32, r"\.conv1d\..*\.weight$": GGMLType.F16}
    more_names: ClassVar[Mapping[str, str]] = {
        "model.encoder.conv1": "a.conv1d.1",
        "model.encoder.conv2": "a.conv1d.2",
        "model.encoder.embed_positions": "a.position_embd",
        "model.encoder.layer_norm": "a.post_ln",
        "model.decoder.embed_tokens": "token_embd",
        "model.decoder.embed_positions": "position_embd",
        "model.decoder.layer_norm": "dec.output_norm",
        **in_layers("model.encoder.layers.{}.", "a.blk.{}.", {**PARTS, **HEARING}),
        **in_layers("model.decoder.layers.{}.", "dec.blk.{}.", PARTS),
    }  # fmt: skip

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.config = folder.config
        self.check_config()
        self.n_encoder, self.n_decoder = (
            self.config.need(f"{part}_layers", most=MOST_LAYERS) for part in ("encoder", "decoder")
        )
        self.n_layer = max(self.n_encoder, self.n_decoder)

    def metadata(self) -> dict[str, Any]:
        c = self.config
        return {
            "context_length": c.need("max_target_positions"),
            "embedding_length": c.need("d_model"),
            "feed_forward_length": c.need("decoder_ffn_dim"),
            "block_count": self.n_decoder,
            "attention.head_count": c.need("decoder_attention_heads"),
            "attention.layer_norm_epsilon": 1e-5,
            SOUND_WINDOW: c.need("max_source_positions"),
            "decoder_start_token_id": self.token("<|startoftranscript|>"),
            "multilingual": bool(self._generation("is_multilingual", c.first("vocab_size") != ENGLISH_ONLY)),
            **self._alignment_heads(),
        }

    def _alignment_heads(self) -> dict[str, list[int]]:
        """Return the heads that tell times, as pairs of numbers, if they are known."""
        heads = self._generation("alignment_heads")
        if not isinstance(heads, list) or not all(isinstance(head, list) and len(head) == 2 for head in heads):
            return {}
        numbers = self._integers("alignment_heads", [number for head in heads for number in head])
        return {"alignment_heads": numbers} if numbers else {}

    def _generation(self, key: str, default: Any = None) -> Any:
        """Return a value of ``generation_config.json``, or of ``config.json``, where older folders have it."""
        value = self.folder.optional_json("generation_config.json").get(key, self.config.first(key))
        return default if value is None else value

    def _integers(self, key: str, values: Any) -> list[int]:
        values = [] if values is None else values
        if not isinstance(values, list) or any(type(value) is not int for value in values):
            raise ConvertError(f"{self.folder.path}: {key} is {values!r:.80}, expected a list of integers")
        return [value for value in values if value >= 0]

    def other_metadata(self) -> dict[str, Any]:
        c, end = self.config, self.token("<|endoftext|>")
        audio = {
            "projector_type": "whisper",
            "projection_dim": c.need("d_model"),
            "embedding_length": c.need("d_model"),
            "feed_forward_length": c.need("encoder_ffn_dim"),
            "block_count": self.n_encoder,
            "attention.head_count": c.need("encoder_attention_heads"),
            "attention.layer_norm_epsilon": 1e-5,
            "num_mel_bins": c.need("num_mel_bins"),
        }
        tokenizer: dict[str, Any] = {
            "bos_token_id": end,
            "eos_token_id": end,
            "add_bos_token": False,
            "add_eos_token": False,
        }
        suppressed = self._integers("suppress_tokens", self._generation("suppress_tokens"))
        if texts := [token for token in suppressed if token < end]:  # special tokens may be the beginning
            tokenizer["suppress_tokens"] = texts
        return {
            "clip.has_audio_encoder": True,
            **{f"clip.audio.{key}": value for key, value in audio.items()},
            **{f"tokenizer.ggml.{key}": value for key, value in tokenizer.items()},
        }

    def token(self, text: str) -> int:
        """Return the id of a special token. Raises ConvertError for a tokenizer without it."""
        if text not in self.added_ids:
            raise ConvertError(f"{self.folder.path}: tokenizer.json has no token {text}")
        return self.added_ids[text]

    def steering_tokens(self) -> Mapping[int, str]:
        """Return the tokens of times, which older tokenizers do not list."""
        return {id: f"<|{time:.2f}|>" for id, time in enumerate(TIMES, self.token("<|notimestamps|>") + 1)}

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if name.endswith(("conv1.bias", "conv2.bias")):
            tensor = tensor.reshape(tensor.shape[0], 1)
        yield self.names(name), tensor


class CTranslate2Whisper(Whisper):
    """Whisper in CTranslate2's ``model.bin``, whose sizes are those of its tensors."""

    # A layer's parts in CTranslate2, and the parts in transformers whose rows they join.
    JOINED: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "self_attention/linear_0": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        "self_attention/linear_1": ("self_attn.out_proj",),
        "self_attention/layer_norm": ("self_attn_layer_norm",),
        "attention/linear_0": ("encoder_attn.q_proj",),
        "attention/linear_1": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
        "attention/linear_2": ("encoder_attn.out_proj",),
        "attention/layer_norm": ("encoder_attn_layer_norm",),
        "ffn/linear_0": ("fc1",),
        "ffn/linear_1": ("fc2",),
        "ffn/layer_norm": ("final_layer_norm",),
    }
    OTHERS: ClassVar[Mapping[str, str]] = {
        "embeddings": "embed_tokens",
        "position_encodings": "embed_positions",
        **{name: name for name in ("conv1", "conv2", "layer_norm")},
    }
    SUFFIXES: ClassVar[Mapping[str, str]] = {"gamma": "weight", "beta": "bias", "encodings": "weight"}

    def __init__(self, folder: Folder) -> None:
        folder.config = folder.config | self._sizes(folder)
        super().__init__(folder)

    @staticmethod
    def _sizes(folder: Folder) -> dict[str, Any]:
        """Return the values that ``config.json`` has in transformers."""
        tensors = folder.ctranslate2[1]
        sizes: dict[str, Any] = {
            "vocab_size": tensors["decoder/embeddings/weight"].shape[0],
            "d_model": tensors["decoder/embeddings/weight"].shape[1],
            "num_mel_bins": tensors["encoder/conv1/weight"].shape[1],
            "suppress_tokens": folder.config.get("suppress_ids"),
        }
        for part, positions in (("encoder", "max_source_positions"), ("decoder", "max_target_positions")):
            layers = {name.split("/")[1] for name in tensors if name.startswith(f"{part}/layer_")} - {"layer_norm"}
            sizes[positions] = tensors[f"{part}/position_encodings/encodings"].shape[0]
            sizes[f"{part}_layers"] = len(layers)
            sizes[f"{part}_ffn_dim"] = tensors[f"{part}/layer_0/ffn/linear_0/weight"].shape[0]
            sizes[f"{part}_attention_heads"] = int(tensors[f"{part}/num_heads"].read())
        return sizes

    def checkpoint(self) -> dict[str, LazyTensor]:
        tensors: dict[str, LazyTensor] = {}
        for name, tensor in self.folder.ctranslate2[1].items():
            part, _, rest = name.partition("/")
            inner, _, suffix = rest.rpartition("/")
            layer, _, inside = inner.partition("/")
            suffix = self.SUFFIXES.get(suffix, suffix)
            if inner in self.OTHERS:
                tensors[f"model.{part}.{self.OTHERS[inner]}.{suffix}"] = tensor
            elif inside in self.JOINED:
                names = self.JOINED[inside]
                rows = tensor.split(*[tensor.shape[0] // len(names)] * len(names))
                stem = f"model.{part}.layers.{layer.removeprefix('layer_')}"
                # A key's bias would change nothing, so Whisper has none; CTranslate2 stores zeros.
                stored = [
                    pair for pair in zip(names, rows, strict=True) if not (suffix == "bias" and "k_proj" in pair[0])
                ]
                tensors |= {f"{stem}.{own}.{suffix}": own_rows for own, own_rows in stored}
        return tensors
