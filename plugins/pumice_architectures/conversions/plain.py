"""Families whose conversion needs little more than new tensor names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pumice.plugin.convert import Conversion, LazyTensor, in_layers, sliding_layers
from pumice_architectures.conversions.llama import add_space_prefix

SPM = ["sentencepiece", "fast_sentencepiece", "bpe"]
META_LAYOUT = {"tensor_data_layout": "Meta AI original pth"}


class SeedOSS(Conversion):
    architecture = "seed_oss"
    pre_tokenizers = ["seed-coder"]


class Maincoder(Conversion):
    architecture = "maincoder"
    pre_tokenizers = ["qwen2"]
    integers = {"rope.dimension_count": "head_dim"}


class PanguEmbedded(Conversion):
    """Pangu Embedded."""

    architecture = "pangu-embedded"
    drops_tied_output = True
    vocabularies = SPM
    integers = {"vocab_size": "vocab_size"}

    def metadata(self) -> dict[str, Any]:
        dim = self.head_dim
        made = {"rope.dimension_count": dim, "attention.key_length": dim, "attention.value_length": dim}
        return made | super().metadata()

    def other_metadata(self) -> dict[str, Any]:
        return add_space_prefix(self)


class PLM(Conversion):
    """PLM: latent attention; keys and values are cached uncompressed."""

    architecture = "plm"
    hidden_act = ""
    pre_tokenizers = ["qwen2"]
    integers = {
        "vocab_size": "vocab_size",
        "attention.kv_lora_rank": "kv_lora_rank",
        "attention.value_length": "v_head_dim",
        "rope.dimension_count": "qk_rope_head_dim",
    }

    def metadata(self) -> dict[str, Any]:
        c = self.config
        return super().metadata() | {"attention.key_length": c.need("qk_nope_head_dim") + c.need("qk_rope_head_dim")}


class Orion(Conversion):
    architecture = "orion"
    vocabularies = SPM
    constants = META_LAYOUT
    without = ("rope.", "attention.layer_norm_rms_epsilon", "attention.key_length", "attention.value_length")
    numbers = {"attention.layer_norm_epsilon": "rms_norm_eps"}
    integers = {"context_length": ("max_sequence_length", "max_position_embeddings", "model_max_length")}

    def metadata(self) -> dict[str, Any]:
        return {"attention.head_count_kv": self.config.need("num_attention_heads")} | super().metadata()


class BitNet(Conversion):
    """BitNet: ternary weights."""

    architecture = "bitnet"
    vocabularies = SPM
    constants = {"rope.scaling.type": "linear", "rope.scaling.factor": 1.0}
    TERNARY = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_up", "ffn_down", "ffn_gate")

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        for new, made in super().convert(name, tensor):
            yield new, made.map(ternary) if new.split(".")[-2] in self.TERNARY and new.endswith(".weight") else made


def ternary(x: Any) -> Any:
    """Round to -s, 0 and s, where s is the mean magnitude (Ma et al. 2024, arXiv:2402.17764)."""
    inverse = 1 / max(abs(x).mean(dtype=x.dtype), x.dtype.type(1e-5))
    return (x * inverse).round().clip(-1, 1) / inverse


class Chameleon(Conversion):
    """The text model of Chameleon."""

    architecture = "chameleon"
    pre_tokenizers = ["chameleon"]
    dropped = ("model.vqmodel",)
    computed = {"swin_norm": lambda self: bool(self.config.first("swin_norm"))}
    interleaves = True

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if ".q_norm." in name or ".k_norm." in name:
            pairs = tensor[0].reshape(2, -1).transpose().reshape(1, -1)
            tensor = pairs.map(lambda x, n=tensor.shape[0]: x.repeat(n, axis=0), tensor.shape)  # type: ignore[misc]
        yield from super().convert(name, tensor)


class LLaDA(Conversion):
    """LLaDA: masked diffusion with Llama's layers."""

    architecture = "llada"
    pre_tokenizers = ["llada-bpe", "llama-bpe"]
    integers = {
        "vocab_size": "vocab_size",
        "context_length": "max_sequence_length",
        "embedding_length": "d_model",
        "feed_forward_length": "mlp_hidden_size",
    }
    defaults = {"context_length": 4096, "embedding_length": 4096, "feed_forward_length": 12288}
    constants = {"attention.causal": False}
    interleaves = True

    def metadata(self) -> dict[str, Any]:
        c = self.config
        dim = c.first("head_dim") or c.need("hidden_size", "d_model") // c.need("num_attention_heads", "n_heads")
        return super().metadata() | {"rope.dimension_count": dim}

    def other_metadata(self) -> dict[str, Any]:
        return {"tokenizer.ggml.add_bos_token": True, "diffusion.shift_logits": False}


class Spark25(Conversion):
    """Spark 2.5: head gates, sliding windows."""

    architecture = "spark2_5"
    hidden_act = "gelu"
    named_as = "step35"
    more_names = {"model.layers.{}.self_attn.qkv_proj": "blk.{}.attn_qkv"}
    pre_tokenizers = ["spark2_5"]
    integers = {"vocab_size": "vocab_size", "attention.sliding_window": "sliding_window"}

    def metadata(self) -> dict[str, Any]:
        c = self.config
        whole, window = c.whole_rope, c.rope.get("sliding_attention", {})
        return super().metadata() | {
            "attention.sliding_window_pattern": sliding_layers(c),
            "rope.dimension_count": int(self.head_dim * float(whole.get("partial_rotary_factor", 1.0))),
            "rope.dimension_count_swa": int(self.head_dim * float(window.get("partial_rotary_factor", 1.0))),
        }

    def rename(self, name: str) -> str | None:
        new_name = super().rename(name)
        return new_name and new_name.replace("self_attn.q_k_v_proj", "self_attn.qkv_proj")


class Talkie(Conversion):
    """Talkie: gains next to weights; the second half of queries and keys is negated."""

    architecture = "talkie"
    named_as = "llama"
    more_names = {
        "model.embed": "token_embd",
        **in_layers("model.blocks.{}.", "blk.{}.", {
            "attn.attn_query": "attn_q", "attn.attn_key": "attn_k", "attn.attn_value": "attn_v",
            "attn.attn_resid": "attn_output", "attn.head_gain.head_g": "attn_q_norm", "mlp.mlp_gate": "ffn_gate",
            "mlp.mlp_linear": "ffn_up", "mlp.mlp_resid": "ffn_down", "embed_skip.a_g": "layer_output_scale",
        }),
    }  # fmt: skip
    pre_tokenizers = ["talkie"]
    constants = {"attention.layer_norm_rms_epsilon": 2.0**-23}
    GAINS = {"attn_gain.a_g": "attn_output.scale", "mlp_gain.a_g": "ffn_down.scale"}
    LOGIT_GAIN = "lm_head_gain.w_g"
    unused = (LOGIT_GAIN,)

    def metadata(self) -> dict[str, Any]:
        gain = self.folder.tensors.get(self.LOGIT_GAIN)
        return super().metadata() | ({} if gain is None else {"logit_scale": float(gain.read().flat[0])})

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        for part, new in self.GAINS.items():
            if name.endswith(part):
                yield f"blk.{name.split('.')[2]}.{new}", tensor
                return
        if name.endswith(("attn.attn_query.weight", "attn.attn_key.weight")):
            tensor = tensor.map(self._turned)
        elif name.endswith("attn.head_gain.head_g"):
            tensor = tensor.reshape(*tensor.shape, 1)
        yield from super().convert(name if name.endswith(".weight") else f"{name}.weight", tensor)

    def _turned(self, x: Any) -> Any:
        heads = x.reshape(-1, self.head_dim, x.shape[-1]).copy()
        heads[:, self.head_dim // 2 :] *= -1
        return heads.reshape(x.shape)
