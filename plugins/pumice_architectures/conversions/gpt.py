"""GPT 2 and what followed it: queries, keys and values in one matrix, laid out as each family likes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pumice.plugin.convert import Conversion, LazyTensor, concatenate, stack


class GPT2(Conversion):
    """GPT 2: matrices the other way round."""

    architecture = "gpt2"
    pre_tokenizers = ("gpt-2",)
    TRANSPOSED = (".c_attn.weight", ".c_proj.weight", ".c_fc.weight")

    def metadata(self) -> dict[str, Any]:
        return super().metadata() | {"feed_forward_length": 4 * self.config.need("n_embd")}

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        yield from super().convert(name, tensor.transpose() if name.endswith(self.TRANSPOSED) else tensor)


class GPTNeoX(Conversion):
    """GPT-NeoX and Pythia: query, key and value of each head together."""

    architecture = "gptneox"
    pre_tokenizers = ("olmo", "gpt-2")

    def metadata(self) -> dict[str, Any]:
        head_dim = self.config.need("hidden_size") // self.config.need("num_attention_heads")
        part = float(self.config.rope.get("partial_rotary_factor", 0.25))
        left_out = ("rope.freq_base", "attention.head_count_kv")
        residual = self.config.first("use_parallel_residual")
        return {key: value for key, value in super().metadata().items() if key not in left_out} | {
            "rope.dimension_count": int(part * head_dim),
            "use_parallel_residual": True if residual is None else bool(residual),
        }

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if "attention.query_key_value." in name:
            heads = tensor.reshape(self.config.need("num_attention_heads"), 3, -1, *tensor.shape[1:])
            tensor = concatenate([heads[:, part].reshape(-1, *tensor.shape[1:]) for part in range(3)])
        yield from super().convert(name, tensor)


class Falcon(Conversion):
    """Falcon: the queries of a group, then its key and its value."""

    architecture = "falcon"
    pre_tokenizers = ("falcon",)

    def metadata(self) -> dict[str, Any]:
        n_embd = self.config.need("hidden_size")
        found = {key: value for key, value in super().metadata().items() if not key.startswith("rope.")}
        return found | {
            "context_length": 2048,  # no configuration says
            "tensor_data_layout": "jploski",
            "feed_forward_length": 4 * n_embd,
            "attention.head_count_kv": self._n_head_kv,
        }

    @property
    def _n_head_kv(self) -> int:
        if self.config.get("multi_query") and not self.config.get("new_decoder_architecture"):
            return 1
        return self.config.first("num_kv_heads", "n_head_kv") or 1

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if "query_key_value" in name:
            n_group = self.config.need("num_attention_heads", "n_head") // self._n_head_kv
            groups = tensor.reshape(self._n_head_kv, n_group + 2, -1, *tensor.shape[1:])
            parts = (groups[:, :-2], groups[:, -2:-1], groups[:, -1:])
            tensor = concatenate([part.reshape(-1, *tensor.shape[1:]) for part in parts])
        yield from super().convert(name, tensor)


class StableLM(Conversion):
    """StableLM: norms of queries and keys for each head."""

    architecture = "stablelm"
    pre_tokenizers = ("stablelm2", "olmo", "gpt-2")

    def metadata(self) -> dict[str, Any]:
        head_dim = self.config.need("hidden_size") // self.config.need("num_attention_heads")
        part = float(self.config.rope.get("partial_rotary_factor", 0.25))
        found = {key: value for key, value in super().metadata().items() if key != "rope.freq_base"}
        residual = self.config.first("use_parallel_residual")
        return found | {
            "rope.dimension_count": int(part * head_dim),
            "use_parallel_residual": True if residual is None else bool(residual),
        }

    def tensors(self) -> Iterator[tuple[str, LazyTensor]]:
        norms: dict[str, list[tuple[int, LazyTensor]]] = {}
        for name, tensor in super().tensors():
            base, dot, head = name.removesuffix(".weight").partition("_norm.norms.")
            if dot:
                norms.setdefault(f"{base}_norm.weight", []).append((int(head), tensor))
            else:
                yield name, tensor
        for name, of_heads in norms.items():
            yield name, stack([tensor for _, tensor in sorted(of_heads, key=lambda each: each[0])])

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        before, mark, head = name.partition("_layernorm.norms.")
        if mark:
            whole = self.names(f"{before}_layernorm.weight").removesuffix(".weight")
            yield f"{whole}.norms.{head}", tensor
        else:
            yield from super().convert(name, tensor)


class StarCoder2(Conversion):
    """StarCoder 2."""

    architecture = "starcoder2"
    pre_tokenizers = ("starcoder",)
