"""BERT and later encoders, for embeddings and for ranking."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pumice.plugin.convert import Conversion, Folder, LazyTensor, pooling, sliding_layers

CLS_POOLING = 2  # value of pooling_type


class Bert(Conversion):
    architecture = "bert"
    needed = {"is_decoder": False}
    hidden_act = "gelu"
    vocabularies = ["wordpiece"]
    renames = {r"^(bert|distilbert|roberta|model)\.": "", r"\.gamma$": ".weight", r"\.beta$": ".bias"}
    dropped = ("cls.predictions", "cls.seq_relationship", "vocab_", "decoder.", "lm_head.")
    POOLER = ("embeddings.position_ids", "pooler.dense.weight", "pooler.dense.bias")
    constants = {"attention.causal": False}

    @property
    def labels(self) -> list[str]:
        """Return the names of a classifier's outputs, or [] if they are only numbered."""
        named = self.config.first("id2label") or {}
        labels = [str(named[key]) for key in sorted(named, key=int)] if isinstance(named, dict) else []
        return [] if labels[:1] == ["LABEL_0"] and len(labels) == 2 else labels

    def metadata(self) -> dict[str, Any]:
        metadata = super().metadata() | pooling(self.folder)
        return metadata | ({"classifier.output_labels": self.labels} if self.labels else {})

    def other_metadata(self) -> dict[str, Any]:
        types = self.config.first("type_vocab_size")
        return {"tokenizer.ggml.token_type_count": 1 if types is None else types}

    def rename(self, name: str) -> str | None:
        new_name = super().rename(name)
        if new_name is None or new_name in self.POOLER:
            return None
        return new_name.replace("classifier.", "classifier.out_proj.") if self.labels and new_name in (
            "classifier.weight", "classifier.bias",
        ) else new_name  # fmt: skip


class DistilBert(Bert):
    constants = Bert.constants | {"attention.layer_norm_epsilon": 1e-12}


class Roberta(Bert):
    """RoBERTa: the first rows of the position table are for padding."""

    vocabularies = ["bpe", "wordpiece"]
    pre_tokenizers = ["roberta-bpe", "gpt-2"]

    @property
    def n_padding(self) -> int:
        pad = self.config.first("pad_token_id")
        return 0 if pad is None else pad + 1

    def metadata(self) -> dict[str, Any]:
        metadata = super().metadata()
        return metadata | {"context_length": metadata["context_length"] - self.n_padding}

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        is_position = name == "embeddings.position_embeddings.weight"
        yield from super().convert(name, tensor[self.n_padding :] if is_position else tensor)


class XLMRoberta(Roberta):
    """XLM-RoBERTa, and Jina Embeddings 3 without its adapters."""

    vocabularies = ["unigram"]
    renames = Bert.renames | {r"\.parametrizations\.": ".", r"\.original$": ""}
    unused = (".0.lora_A", ".0.lora_B")

    def __init__(self, folder: Folder) -> None:
        super().__init__(folder)
        if self.config.first("lora_adaptations"):
            self.architecture = "jina-bert-v3"


class NomicBert(Bert):
    """Nomic Embed: rotary positions, and experts in some layers."""

    architecture = "nomic-bert"
    hidden_act = ""
    vocabularies = ["wordpiece", "unigram"]
    unused = ("mlp.experts.bias",)
    TRAINED = {8192: 2048, 2048: 512}  # context of the configuration -> context of the training

    def __init__(self, folder: Folder) -> None:
        super().__init__(folder)
        self.is_moe = bool(self.config.first("moe_every_n_layers"))
        self.architecture = "nomic-bert-moe" if self.is_moe else "nomic-bert"

    def metadata(self) -> dict[str, Any]:
        c = self.config
        n_ctx = self.TRAINED.get(c.need("n_positions"))
        if n_ctx is None or (c.first("max_trained_positions") or 2048) != 2048:
            raise c.unsupported("n_positions", "2048 or 8192")
        metadata = super().metadata() | {"context_length": n_ctx}
        more = {"moe_every_n_layers": c.first("moe_every_n_layers"), "expert_used_count": c.first("moe_top_k")}
        return metadata | (more if self.is_moe else {})

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        c = self.config
        if "mlp.experts.mlp.w" in name:
            n_expert = c.need("num_local_experts", "num_experts")
            tensor = tensor.reshape(n_expert, c.need("n_inner"), c.need("n_embd"))
            tensor = tensor.transpose(0, 2, 1) if ".w2" in name else tensor
            name = f"{name}.weight"
        yield from super().convert(name, tensor)


class NeoBert(Bert):
    architecture = "neo-bert"
    hidden_act = ""
    constants = Bert.constants | {
        "rope.freq_base": 10000.0,
        "rope.scaling.type": "none",
        "pooling_type": CLS_POOLING,
    }
    defaults = {"attention.layer_norm_rms_epsilon": 1e-6}
    computed = {"feed_forward_length": lambda self: int(2 * self.config.need("intermediate_size") / 3)}


class EuroBert(Conversion):
    """EuroBERT, and Jina's embeddings based on it."""

    architecture = "eurobert"
    pre_tokenizers = ["llama-bpe", "gpt-2"]
    renames = {r"^model\.": ""}
    constants = {"attention.causal": False, "rope.scaling.type": "none"}

    def metadata(self) -> dict[str, Any]:
        return super().metadata() | pooling(self.folder)

    def other_metadata(self) -> dict[str, Any]:
        return {"tokenizer.ggml.add_bos_token": False}


class JinaBert2(Bert):
    """Jina Embeddings 2: linear distance biases (ALiBi)."""

    architecture = "jina-bert-v2"
    vocabularies = ["wordpiece", "bpe"]
    pre_tokenizers = ["jina-v2-code", "gpt-2"]


class ModernBert(Bert):
    """ModernBERT: sliding windows in most layers."""

    architecture = "modern-bert"
    numbers = {"attention.layer_norm_epsilon": ("norm_eps", "layer_norm_eps")}
    hidden_act = ""
    required = ("rope_theta", "local_attention")
    vocabularies = ["bpe"]
    pre_tokenizers = ["gpt-2"]
    integers = {
        "attention.sliding_window": "local_attention",
        "attention.sliding_window_pattern": "global_attn_every_n_layers",
        "vocab_size": "vocab_size",
    }
    constants = Bert.constants | {"rope.scaling.type": "none"}

    def metadata(self) -> dict[str, Any]:
        activation, slides = self.config.first("hidden_activation"), sliding_layers(self.config)
        metadata = super().metadata() | ({"hidden_activation": str(activation)} if activation else {})
        is_usual = slides == [i % 3 > 0 for i in range(len(slides))]
        return metadata if is_usual else metadata | {"attention.sliding_window_pattern": slides}

    def other_metadata(self) -> dict[str, Any]:
        return {f"tokenizer.ggml.add_{which}_token": True for which in ("bos", "eos", "sep")}
