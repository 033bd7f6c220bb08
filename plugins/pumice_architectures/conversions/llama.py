"""Llama, and families whose queries and keys are stored as Llama's: halves that GGUF has as pairs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from pumice.plugin import GGMLType
from pumice.plugin.convert import Conversion, ConvertError, Folder, LazyTensor, layer_of, number, pooling
from pumice_architectures.conversions.rope_factors import llama3_factors, long_factors

QUERIES = ("q_proj.weight", "q_proj.bias")
KEYS = ("k_proj.weight", "k_proj.bias")
N_VOCAB_STARCODER, N_VOCAB_CODE_LLAMA = 49152, 32016  # by which these vocabularies are told
CODE_LLAMA_EOT = 32010  # the token that ends what was filled in


class Llama(Conversion):
    """Llama 1 to 3, Mistral, Mixtral."""

    architecture = "llama"
    vocabularies = ["tekken", "sentencepiece", "fast_sentencepiece", "bpe"]
    pre_tokenizers = ["llama-bpe"]
    integers = {"vocab_size": "vocab_size"}
    renames = {r"text_model\.": "", r"^(?!model\.|lm_head\.)": "model."}
    interleaved = True

    @classmethod
    def made_for(cls, folder: Folder) -> Conversion:
        """EAGLE-3's layer has the class of its target in some checkpoints."""
        if "draft_vocab_size" in folder.config and folder.config.first("num_hidden_layers") == 1:
            return Eagle3(folder)
        return cls(folder)

    def metadata(self) -> dict[str, Any]:
        return super().metadata() | {"rope.dimension_count": self.head_dim}

    def other_metadata(self) -> dict[str, Any]:
        n_vocab = self.config.get("vocab_size")
        found = add_space_prefix(self)
        if n_vocab == N_VOCAB_CODE_LLAMA:
            found["tokenizer.ggml.eot_token_id"] = CODE_LLAMA_EOT
        if n_vocab == N_VOCAB_STARCODER:
            found["tokenizer.ggml.add_bos_token"] = False
        return found

    def more_tensors(self) -> Iterator[tuple[str, LazyTensor]]:
        yield from llama3_factors(self.config.whole_rope, self.head_dim)

    def rename(self, name: str) -> str | None:
        found = super().rename(name)
        if found and "block_sparse_moe.experts." in found:  # as Mixtral's first files have it
            return found.removeprefix("model.").replace("block_sparse_moe", "feed_forward")
        return found

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        yield from super().convert(name, interleaved(self, name, tensor) if self.interleaved else tensor)


class Eagle3(Llama):
    """EAGLE-3: one layer, and the matrix that makes its state of the target's."""

    architecture = "eagle3"
    named_as = "llama"
    is_draft = True
    dropped = ("t2d",)
    renames = {r"^(midlayer|layers\.0)\.": "model.layers.0.", r"^(embed_tokens|norm)\.": r"model.\1."}
    more_names = {
        "fc": "fc",
        "input_norm": "enc.output_norm",
        "model.layers.{}.hidden_norm": "blk.{}.attn_norm_2",
        "d2t": "d2t",
    }

    def metadata(self) -> dict[str, Any]:
        c, target = self.config, self.target_conversion
        n = target.n_layer
        return super().metadata() | {
            "target_layers": c.first("eagle_aux_hidden_state_layer_ids") or [2, n // 2, n - 3],
            "target_hidden_size": c.first("target_hidden_size") or target.config.need("hidden_size"),
            "norm_before_residual": bool(c.first("norm_before_residual")),
            "norm_before_fc": bool(c.first("norm_before_fc")),
        }

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        yield from super().convert(name, tokens_of_target(self, tensor) if name == "d2t" else tensor)


def tokens_of_target(conversion: Conversion, distances: LazyTensor) -> LazyTensor:
    """The target's token for each of the draft's, which checkpoints have as its distance."""
    n_vocab = conversion.target_conversion.n_vocab(0)

    def absolute(values: np.ndarray) -> np.ndarray:
        ids = values.reshape(-1).astype(np.int64) + np.arange(values.size)
        if ids.min(initial=0) < 0 or ids.max(initial=0) >= n_vocab or len(np.unique(ids)) != len(ids):
            raise ConvertError(f"{conversion.folder.path}: d2t does not list different tokens of {n_vocab}")
        return ids

    return distances.map(absolute, (distances.size,)).integers(GGMLType.I64)


def interleaved(conversion: Conversion, name: str, tensor: LazyTensor) -> LazyTensor:
    """Rows of queries and keys in pairs; other tensors as they are."""
    n_head = conversion.config.need("num_attention_heads", "n_heads")
    if name.endswith(QUERIES):
        return tensor.interleave_rope(n_head)
    if name.endswith(KEYS):
        return tensor.interleave_rope(conversion.config.first("num_key_value_heads", "n_kv_heads") or n_head)
    return tensor


def queries_keys_values(
    name: str, parts: Sequence[LazyTensor], n_head: int, n_head_kv: int
) -> Iterator[tuple[str, LazyTensor]]:
    """Of a layer's attention, which ``name`` belongs to: rows of queries and keys in pairs, and of values."""
    q, k, v = parts
    for part, rows in (("q", q.interleave_rope(n_head)), ("k", k.interleave_rope(n_head_kv)), ("v", v)):
        yield f"blk.{layer_of(name)}.attn_{part}.weight", rows


def add_space_prefix(conversion: Conversion) -> dict[str, Any]:
    """Whether the tokenizer puts a space before a text, where its configuration says."""
    value = conversion.folder.optional_json("tokenizer_config.json").get("add_prefix_space")
    return {} if value is None else {"tokenizer.ggml.add_space_prefix": bool(value)}


class SmolLM3(Llama):
    """SmolLM3."""

    architecture = "smollm3"


class LlamaEmbed(Llama):
    """Llama that sees a text in both directions."""

    architecture = "llama-embed"


class CogVLM(Llama):
    """CogVLM, text of it."""

    architecture = "cogvlm"


class Arcee(Llama):
    """Arcee."""

    architecture = "arcee"

    def metadata(self) -> dict[str, Any]:
        return super().metadata() | pooling(self.folder)


class Janus(Llama):
    """Janus, text of it."""

    dropped = ("model.vision_model.", "model.aligner.", "model.vqmodel.", "model.generation_")


class Sarashina2(Llama):
    """Sarashina 2 with images, text of it."""

    dropped = ("norm.",)  # that of images
    renames = {r"^llm\.": ""} | Llama.renames


class Nanbeige(Llama):
    """Nanbeige: layers that are gone through several times."""

    architecture = "nanbeige"
    named_as = "llama"

    def metadata(self) -> dict[str, Any]:
        return super().metadata() | {
            "num_loops": max(int(self.config.first("num_loops") or 1), 1),
            "skip_loop_final_norm": bool(self.config.get("skip_loop_final_norm")),
        }


class AfMoE(Llama):
    """AfMoE: gated attention, windows, experts."""

    architecture = "afmoe"
    interleaved = False
    integers = Llama.integers | {
        "expert_shared_count": "num_shared_experts",
        "expert_feed_forward_length": "moe_intermediate_size",
        "leading_dense_block_count": "num_dense_layers",
        "attention.sliding_window": "sliding_window",
    }
    numbers = {"expert_weights_scale": "route_scale"}
    flags = {"expert_weights_norm": "route_norm"}
    renames = Llama.renames | {r"\.expert_bias$": ".expert_bias.bias"}


class Llama4(Llama):
    """Llama 4: experts in every so many layers, gate and up in one matrix, the other way round."""

    architecture = "llama4"
    vocabularies = ["bpe"]
    pre_tokenizers = ["llama4"]
    interleaved = False
    integers = Llama.integers | {
        "feed_forward_length": "intermediate_size_mlp",
        "expert_feed_forward_length": "intermediate_size",
        "interleave_moe_layer_step": "interleave_moe_layer_step",
    }

    def metadata(self) -> dict[str, Any]:
        found = super().metadata()
        kinds = self.config.first("layer_types")
        if kinds and all(kind == "full_attention" for kind in kinds):
            found["attention.sliding_window"] = 0
        return found

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if name.endswith("experts.gate_up_proj"):
            for part, half in zip(("gate", "up"), tensor.halves(-1), strict=True):
                yield from super().convert(name.replace("gate_up_proj", f"{part}_proj.weight"), half.transpose(0, 2, 1))
        elif name.endswith("experts.down_proj"):
            yield from super().convert(f"{name}.weight", tensor.transpose(0, 2, 1))
        else:
            yield from super().convert(name, tensor)


class Apertus(Llama):
    """Apertus: the activation xIELU, whose constants stand in the metadata."""

    architecture = "apertus"
    interleaved = False
    CONSTANTS = ("alpha_n", "alpha_p", "beta", "eps")

    def rename(self, name: str) -> str | None:
        return None if ".act_fn." in name else super().rename(name)

    def other_metadata(self) -> dict[str, Any]:
        tensors = self.folder.tensors
        names = {part: [f"model.layers.{i}.mlp.act_fn.{part}" for i in range(self.n_layer)] for part in self.CONSTANTS}
        return super().other_metadata() | {
            f"xielu.{part}": [float(tensors[name].read().flat[0]) for name in of_layers]
            for part, of_layers in names.items()
            if all(name in tensors for name in of_layers)
        }


class MiniCPM(Llama):
    """MiniCPM: multipliers, and factors of rotary frequencies for short and for long contexts."""

    architecture = "minicpm"
    vocabularies = ["sentencepiece", "fast_sentencepiece", "bpe"]
    integers = {}

    def metadata(self) -> dict[str, Any]:
        c = self.config
        found = {key: value for key, value in super().metadata().items() if key != "rope.dimension_count"}
        return found | {
            "embedding_scale": number(c, "scale_emb"),
            "residual_scale": number(c, "scale_depth") / self.n_layer**0.5,
            "logit_scale": c.need("hidden_size") / number(c, "dim_model_base"),
        }

    def other_metadata(self) -> dict[str, Any]:
        return {}

    def more_tensors(self) -> Iterator[tuple[str, LazyTensor]]:
        yield from long_factors(self.config.whole_rope)
