"""Llama, and families with its layout of queries and keys: halves in checkpoints, pairs in GGUF."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from pumice.plugin import GGMLType
from pumice.plugin.convert import Conversion, ConvertError, Folder, LazyTensor, layer_of, number, pooling
from pumice_architectures.conversions.rope_factors import llama3_factors, long_factors

N_VOCAB_STARCODER, N_VOCAB_CODE_LLAMA = 49152, 32016  # sizes that identify these vocabularies
N_EXPERT_MAVERICK = 128  # of the only Llama 4 that does not normalize queries and keys
CODE_LLAMA_EOT = 32010  # end of infilled text


class Llama(Conversion):
    """Llama 1 to 3."""

    architecture = "llama"
    vocabularies = ["tekken", "sentencepiece", "fast_sentencepiece", "bpe"]
    pre_tokenizers = ["llama-bpe"]
    integers = {"vocab_size": "vocab_size"}
    renames = {r"text_model\.": "", r"^(?!model\.|lm_head\.)": "model."}
    interleaves = True
    computed = {"rope.dimension_count": lambda self: self.head_dim}

    @classmethod
    def made_for(cls, folder: Folder) -> Conversion:
        """Return the conversion; some EAGLE-3 checkpoints have the class name of their target."""
        if "draft_vocab_size" in folder.config and folder.config.first("num_hidden_layers") == 1:
            return Eagle3(folder)
        return cls(folder)

    def other_metadata(self) -> dict[str, Any]:
        n_vocab = self.config.get("vocab_size")
        metadata = add_space_prefix(self)
        if n_vocab == N_VOCAB_CODE_LLAMA:
            metadata["tokenizer.ggml.eot_token_id"] = CODE_LLAMA_EOT
        if n_vocab == N_VOCAB_STARCODER:
            metadata["tokenizer.ggml.add_bos_token"] = False
        return metadata

    def more_tensors(self) -> Iterator[tuple[str, LazyTensor]]:
        yield from llama3_factors(self.config.whole_rope, self.head_dim)

    def rename(self, name: str) -> str | None:
        new_name = super().rename(name)
        if new_name and "block_sparse_moe.experts." in new_name:  # in the first Mixtral checkpoints
            return new_name.removeprefix("model.").replace("block_sparse_moe", "feed_forward")
        return new_name


class Mistral(Llama):
    """Mistral and Mixtral, whose first versions have a sliding window in all layers."""

    integers = Llama.integers | {"attention.sliding_window": "sliding_window"}


class Mixtral(Mistral):
    required = ("rope_theta",)


class Eagle3(Llama):
    """EAGLE-3: one layer, and the projection of the target's hidden states."""

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
    """Return the target's token of each draft token; checkpoints store the difference."""
    n_vocab = conversion.target_conversion.n_vocab(0)

    def absolute(values: np.ndarray) -> np.ndarray:
        ids = values.reshape(-1).astype(np.int64) + np.arange(values.size)
        if ids.min(initial=0) < 0 or ids.max(initial=0) >= n_vocab or len(np.unique(ids)) != len(ids):
            raise ConvertError(f"{conversion.folder.path}: tensor d2t must list distinct tokens below {n_vocab}")
        return ids

    return distances.map(absolute, (distances.size,)).integers(GGMLType.I64)


def queries_keys_values(
    name: str, parts: Sequence[LazyTensor], n_head: int, n_head_kv: int
) -> Iterator[tuple[str, LazyTensor]]:
    """Yield the attention tensors of the layer in ``name``: queries and keys with rows in pairs, and values."""
    q, k, v = parts
    for part, rows in (("q", q.interleave_rope(n_head)), ("k", k.interleave_rope(n_head_kv)), ("v", v)):
        yield f"blk.{layer_of(name)}.attn_{part}.weight", rows


def add_space_prefix(conversion: Conversion) -> dict[str, Any]:
    """Return whether the tokenizer prepends a space, if its configuration tells."""
    value = conversion.folder.optional_json("tokenizer_config.json").get("add_prefix_space")
    return {} if value is None else {"tokenizer.ggml.add_space_prefix": bool(value)}


class SmolLM3(Llama):
    architecture = "smollm3"
    required = ("rope_theta",)

    def metadata(self) -> dict[str, Any]:
        turned = self.config.first("no_rope_layers")  # 1 for a layer with RoPE
        if turned and turned != [int(i % 4 < 3) for i in range(self.n_layer)]:
            raise self.config.unsupported("no_rope_layers", "RoPE in all layers but every fourth")
        return super().metadata()


class LlamaEmbed(Llama):
    """Llama with bidirectional attention."""

    architecture = "llama-embed"


class CogVLM(Llama):
    """The text model of CogVLM, with the matrices for images, which llama.cpp reads, but its converter leaves out."""

    architecture = "cogvlm"
    BASE_2 = 500000.0  # of CogVLM 2's RoPE, which its configuration does not name

    def __init__(self, folder: Folder) -> None:
        super().__init__(folder)
        if n_head_kv := self.config.first("num_multi_query_heads"):  # of CogVLM 2
            self.config = self.config | {"num_key_value_heads": n_head_kv, "rope_theta": self.BASE_2}

    def rename(self, name: str) -> str | None:
        is_visual = re.match(r"model\.layers\.\d+\.(self_attn\.vision_expert|mlp\.vision_mlp)", name)
        return name if is_visual else super().rename(name)


class Arcee(Llama):
    architecture = "arcee"
    hidden_act = "relu2"

    def metadata(self) -> dict[str, Any]:
        return super().metadata() | pooling(self.folder)


class Janus(Llama):
    """The text model of Janus."""

    dropped = ("model.vision_model.", "model.aligner.", "model.vqmodel.", "model.generation_")


class Sarashina2(Llama):
    """The text model of Sarashina 2 Vision."""

    dropped = ("norm.",)  # the norm of the vision model
    renames = {r"^llm\.": ""} | Llama.renames


class Nanbeige(Llama):
    """Nanbeige: layers run several times."""

    architecture = "nanbeige"
    named_as = "llama"
    computed = {
        **Llama.computed,
        "num_loops": lambda self: max(int(self.config.first("num_loops") or 1), 1),
        "skip_loop_final_norm": lambda self: bool(self.config.get("skip_loop_final_norm")),
    }


class AfMoE(Llama):
    """AfMoE: gated attention, sliding windows, experts."""

    architecture = "afmoe"
    required = ("mup_enabled",)
    needed = {"mup_enabled": True, "route_norm": True}
    window_period = 4
    interleaves = False
    integers = Llama.integers | {
        "expert_shared_count": "num_shared_experts",
        "leading_dense_block_count": "num_dense_layers",
        "attention.sliding_window": "sliding_window",
    }
    numbers = {"expert_weights_scale": "route_scale"}
    constants = {"expert_weights_norm": True}
    renames = Llama.renames | {r"\.expert_bias$": ".expert_bias.bias"}


class Llama4(Llama):
    """Llama 4: experts at regular intervals of layers, with gate and up in one transposed matrix."""

    architecture = "llama4"
    required = ("rope_theta",)
    needed = {"attention_chunk_size": 8192, "floor_scale": 8192, "attn_scale": 0.1}
    vocabularies = ["bpe"]
    pre_tokenizers = ["llama4"]
    interleaves = False
    integers = Llama.integers | {
        "feed_forward_length": "intermediate_size_mlp",
        "expert_feed_forward_length": "intermediate_size",
        "interleave_moe_layer_step": "interleave_moe_layer_step",
    }

    def metadata(self) -> dict[str, Any]:
        metadata, c = super().metadata(), self.config
        c.expect("use_qk_norm", c.first("num_local_experts") != N_EXPERT_MAVERICK)
        kinds = c.first("layer_types")
        if kinds and all(kind == "full_attention" for kind in kinds):
            metadata["attention.sliding_window"] = 0
        return metadata

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if name.endswith("experts.gate_up_proj"):
            for part, half in zip(("gate", "up"), tensor.halves(-1), strict=True):
                yield from super().convert(name.replace("gate_up_proj", f"{part}_proj.weight"), half.transpose(0, 2, 1))
        elif name.endswith("experts.down_proj"):
            yield from super().convert(f"{name}.weight", tensor.transpose(0, 2, 1))
        else:
            yield from super().convert(name, tensor)


class Apertus(Llama):
    """Apertus: the activation xIELU, whose parameters are stored in the metadata."""

    architecture = "apertus"
    required = ("rope_theta",)
    hidden_act = "xielu"
    interleaves = False
    unused = (".act_fn.",)
    CONSTANTS = ("alpha_n", "alpha_p", "beta", "eps")

    def other_metadata(self) -> dict[str, Any]:
        tensors = {name.replace("language_model.", ""): tensor for name, tensor in self.folder.tensors.items()}
        names = {part: [f"model.layers.{i}.mlp.act_fn.{part}" for i in range(self.n_layer)] for part in self.CONSTANTS}
        return super().other_metadata() | {
            f"xielu.{part}": [float(tensors[name].read().flat[0]) for name in of_layers]
            for part, of_layers in names.items()
            if all(name in tensors for name in of_layers)
        }


class Apertus15(Apertus):
    """The text model of Apertus 1.5, whose output matrix may lack the tokens of images and sounds."""

    def missing_tokens(self) -> range:
        """Return the last tokens, which the output matrix does not have."""
        n = self.config.need("vocab_size")
        return range(self.config.need("output_vocab_size", "vocab_size", most=n), n)

    def other_metadata(self) -> dict[str, Any]:
        missing = {"tokenizer.ggml.suppress_tokens": [*self.missing_tokens()]} if self.missing_tokens() else {}
        return super().other_metadata() | missing

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if name == "lm_head.weight" and (n_missing := len(self.missing_tokens())):
            tensor = tensor.pad(n_missing)
        yield from super().convert(name, tensor)


class MiniCPM(Llama):
    """MiniCPM: multipliers, and RoPE factors for short and long contexts."""

    architecture = "minicpm"
    vocabularies = ["sentencepiece", "fast_sentencepiece", "bpe"]
    integers = {}

    def metadata(self) -> dict[str, Any]:
        c = self.config
        metadata = {key: value for key, value in super().metadata().items() if key != "rope.dimension_count"}
        return metadata | {
            "embedding_scale": number(c, "scale_emb"),
            "residual_scale": number(c, "scale_depth") / self.n_layer**0.5,
            "logit_scale": c.need("hidden_size") / number(c, "dim_model_base"),
        }

    def other_metadata(self) -> dict[str, Any]:
        return {}

    def more_tensors(self) -> Iterator[tuple[str, LazyTensor]]:
        yield from long_factors(self.config.whole_rope)
