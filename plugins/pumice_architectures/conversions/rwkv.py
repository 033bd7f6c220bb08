"""RWKV 6 and 7, and transformers converted to them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pumice.plugin.convert import Conversion, LazyTensor, concatenate, layer_of, number, stack
from pumice_architectures.conversions.mamba import ANY_CONTEXT


class RWKV6(Conversion):
    """RWKV 6; the token-shift weights of all parts are one tensor."""

    architecture = "rwkv6"
    hidden_act = ""
    vocabularies = ["rwkv"]
    MIXED = ("w", "k", "v", "r", "g")

    def metadata(self) -> dict[str, Any]:
        c = self.config
        n_embd = c.need("hidden_size")
        is_large = n_embd == 4096
        return {
            "context_length": ANY_CONTEXT,
            "embedding_length": n_embd,
            "block_count": self.n_layer,
            "attention.layer_norm_epsilon": number(c, "layer_norm_epsilon"),
            "rescale_every_n_layers": c.need("rescale_every", least=0),
            "wkv.head_size": c.need("head_size"),
            "time_mix_extra_dim": 64 if is_large else 32,
            "time_decay_extra_dim": 128 if is_large else 64,
            "feed_forward_length": c.first("intermediate_size") or int(n_embd * 3.5) // 32 * 32,
            "attention.head_count": 0,
        }

    def tensors(self) -> Iterator[tuple[str, LazyTensor]]:
        mixed: dict[str, dict[str, LazyTensor]] = {}
        for name, tensor in super().tensors():
            base, _, part = name.removesuffix(".weight").rpartition("time_mix_lerp_")
            if base and part in self.MIXED:
                mixed.setdefault(base, {})[part] = tensor
            else:
                yield name, tensor
        for base, parts in mixed.items():
            whole = stack([parts[part] for part in self.MIXED])
            yield f"{base}time_mix_lerp_fused.weight", whole.reshape(len(self.MIXED), 1, 1, -1)

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        new = self.names(name)
        new = new if new.endswith((".weight", ".bias")) else f"{new}.weight"
        if new.endswith(("time_mix_w1.weight", "time_mix_decay_w1.weight", "time_mix_decay_w2.weight")):
            tensor = tensor.transpose()
        if new.endswith("time_mix_w2.weight"):
            tensor = tensor.transpose(0, 2, 1)
        if new.endswith("time_mix_decay.weight") or "lerp" in new:
            tensor = tensor.squeeze()
        every = self.config.first("rescale_every") or 0
        if every and new.endswith(("time_mix_output.weight", "channel_mix_value.weight")):
            tensor = tensor * 0.5 ** (layer_of(name) // every)
        yield new, tensor


class RWKV6Qwen2(RWKV6):
    """Qwen 2 with RWKV 6's time mix for attention."""

    architecture = "rwkv6qwen2"
    vocabularies = ["sentencepiece", "bpe"]
    pre_tokenizers = ["qwen2"]
    ORDER = (3, 1, 2, 0, 4)  # order of the mixed inputs

    def metadata(self) -> dict[str, Any]:
        c = self.config
        n_embd = c.need("hidden_size")
        is_large = n_embd >= 4096
        return {
            "context_length": ANY_CONTEXT,
            "embedding_length": n_embd,
            "block_count": self.n_layer,
            "wkv.head_size": n_embd // c.need("num_attention_heads"),
            "time_mix_extra_dim": c.first("lora_rank_tokenshift") or (64 if is_large else 32),
            "time_decay_extra_dim": c.first("lora_rank_decay") or (128 if is_large else 64),
            "feed_forward_length": c.need("intermediate_size"),
            "attention.layer_norm_rms_epsilon": number(c, "rms_norm_eps"),
            "token_shift_count": 1,
            "attention.head_count_kv": c.need("num_key_value_heads"),
            "attention.head_count": 0,
        }

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        for new, made in super().convert(name, tensor):
            if "time_mix_w1" in new or "time_mix_w2" in new:
                parts = made.reshape(5, -1, made.shape[-1])
                ordered = concatenate([parts[i : i + 1] for i in self.ORDER])
                made = ordered if "w2" in new else ordered.reshape(-1, made.shape[-1])
            yield new, made


class RWKV7(Conversion):
    """RWKV 7, in its authors' layout or that of the package fla."""

    architecture = "rwkv7"
    hidden_act = ""
    vocabularies = ["rwkv"]
    renames = {
        "blocks": "layers",
        "ffn": "feed_forward",
        "self_attn": "attention",
        "(?<!_)attn": "attention",
        r"time_mixer\.": "",
        "feed_forward_norm": "ln2",
        "g_norm": "ln_x",
    }
    LORA = {"_lora.lora.0.weight": "1.weight", "_lora.lora.2.weight": "2.weight", "_lora.lora.2.bias": "0.weight"}
    TRANSPOSED = tuple(f"time_mix_{part}{side}.weight" for part in "wavg" for side in "12")
    RANKS = {
        "attention.decay_lora_rank": ("lora_rank_decay", "decay_low_rank_dim", 0.5, 1.8),
        "attention.iclr_lora_rank": ("lora_rank_iclr", "a_low_rank_dim", 0.5, 1.8),
        "attention.value_residual_mix_lora_rank": ("lora_rank_value_residual_mix", "v_low_rank_dim", 0.5, 1.3),
        "attention.gate_lora_rank": ("lora_rank_gate", "gate_low_rank_dim", 0.8, 0.6),
    }

    @property
    def mixed(self) -> tuple[str, ...]:
        """Return the parts that mix with the previous token."""
        return (
            ("r", "w", "k", "v", "a", "g")
            if self.config.first("wkv_has_gate") is not False
            else ("r", "w", "k", "v", "a")
        )

    def metadata(self) -> dict[str, Any]:
        c = self.config
        n_embd = c.need("hidden_size")
        return {
            "context_length": ANY_CONTEXT,
            "embedding_length": n_embd,
            "block_count": self.n_layer,
            "attention.layer_norm_epsilon": number(c, "layer_norm_epsilon", "norm_eps"),
            "wkv.head_size": c.need("head_size", "head_dim"),
            "feed_forward_length": c.first("intermediate_size") or 4 * n_embd,
            "attention.head_count": 0,
        } | {
            key: c.first(name, other) or max(1, round(n_embd**power * factor / 32)) * 32
            for key, (name, other, power, factor) in self.RANKS.items()
        }

    def tensors(self) -> Iterator[tuple[str, LazyTensor]]:
        mixed: dict[int, dict[str, LazyTensor]] = {}
        for name, tensor in super().tensors():
            base, _, part = name.partition(".attention.x_")
            if part:
                mixed.setdefault(layer_of(base), {})[part] = tensor
            else:
                yield name, tensor
        for layer, parts in mixed.items():
            whole = parts["x"] if "x" in parts else stack([parts[part] for part in self.mixed])
            yield f"blk.{layer}.time_mix_lerp_fused.weight", whole.reshape(len(self.mixed), 1, 1, -1)

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if "attention.x_" in name:
            yield name, tensor
            return
        is_turned = "_lora.lora" in name
        for part, new in self.LORA.items():
            name = name.replace(part, new)
        new = self.names(name)
        first = layer_of(name) == 0
        if first and "attention.v" in name and "value" not in new:
            return
        new = new if new.endswith((".weight", ".bias")) else f"{new}.weight"
        tensor = tensor.squeeze()
        if new.endswith(self.TRANSPOSED) and not is_turned:
            tensor = tensor.transpose()
        if "r_k" in new:
            tensor = tensor.reshape(-1)
        if first and "time_mix_a" in new:
            yield new.replace("time_mix_a", "time_mix_v"), tensor
        yield new, tensor


class ARWKV7(RWKV7):
    """Qwen 2 with RWKV 7's time mix for attention."""

    architecture = "arwkv7"
    vocabularies = ["sentencepiece", "bpe"]
    pre_tokenizers = ["qwen2"]

    def metadata(self) -> dict[str, Any]:
        c = self.config
        return {
            "context_length": ANY_CONTEXT,
            "embedding_length": c.need("hidden_size"),
            "block_count": self.n_layer,
            "attention.layer_norm_rms_epsilon": number(c, "rms_norm_eps"),
            "wkv.head_size": c.need("head_size"),
            "attention.decay_lora_rank": 64,
            "attention.iclr_lora_rank": 64,
            "attention.value_residual_mix_lora_rank": 32,
            "attention.gate_lora_rank": 128 if c.first("wkv_has_gate") else 0,
            "feed_forward_length": c.need("intermediate_size"),
            "token_shift_count": 1,
            "attention.head_count": 0,
        }
