"""Mamba 1 and 2, and Falcon H1, which adds attention."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from pumice.plugin.convert import Conversion, ConvertError, Folder, HFConfig, LazyTensor, concatenate, in_layers

INNER_EPS = "attention.inner_norm_rms_epsilon"
ANY_CONTEXT = 1 << 20  # tokens; recurrent states have no limit


def decay(tensor: LazyTensor) -> LazyTensor:
    """Return ``A`` of a state space; checkpoints store the logarithm of ``-A``."""
    return tensor.map(lambda x: -np.exp(x))


class Mamba(Conversion):
    """Mamba, and Falcon Mamba with its norms."""

    architecture = "mamba"
    vocabularies = ["bpe", "sentencepiece"]
    pre_tokenizers = ["olmo", "gpt-2"]
    n_vocab_multiple = 8
    changes = {".A_log": decay, "conv1d.weight": lambda taps: taps.reshape(taps.shape[0], taps.shape[-1])}

    def __init__(self, folder: Folder) -> None:
        super().__init__(folder)
        self.n_vocab_multiple = self.config.first("pad_vocab_size_multiple") or self.n_vocab_multiple

    def metadata(self) -> dict[str, Any]:
        c = self.config
        n_embd = c.need("hidden_size", "d_model")
        n_inner = c.first("intermediate_size", "d_inner") or 2 * n_embd
        is_falcon = c.model_class == "FalconMambaForCausalLM"
        if n_inner != 2 * n_embd:
            raise c.unsupported("intermediate_size", f"twice 'hidden_size': {2 * n_embd}")
        return {
            "context_length": ANY_CONTEXT,
            "embedding_length": n_embd,
            "feed_forward_length": 0,
            "attention.head_count": 0,
            "block_count": self.n_layer,
            "ssm.conv_kernel": c.first("conv_kernel", "d_conv") or 4,
            "ssm.inner_size": n_inner,
            "ssm.state_size": c.first("state_size", "d_state") or 16,
            "ssm.time_step_rank": c.first("time_step_rank", "dt_rank") or -(-n_embd // 16),
            "attention.layer_norm_rms_epsilon": float(c.first("layer_norm_epsilon", "rms_norm_eps") or 1e-5),
            "ssm.dt_b_c_rms": is_falcon,
        } | ({INNER_EPS: float(c.get("mixer_rms_eps", 1e-6))} if is_falcon else {})  # fmt: skip


def check_steps(config: HFConfig) -> None:
    """Raise ConvertError if time steps are limited, which no graph does."""
    least, most = config.first("time_step_limit") or (0.0, math.inf)
    if least or most not in (math.inf, {"__float__": "Infinity"}):
        raise config.unsupported("time_step_limit", "[0, Infinity]")


class Mamba2(Conversion):
    """Mamba 2: heads, and groups of heads that share B and C."""

    architecture = "mamba2"
    vocabularies = ["sentencepiece", "bpe"]
    pre_tokenizers = ["olmo", "gpt-2"]
    renames = {r"\.dt_bias$": ".dt_proj.bias", r"^model\.(?=backbone|lm_head)": ""}

    def __init__(self, folder: Folder) -> None:
        super().__init__(folder)
        self.n_vocab_multiple = self.config.first("pad_vocab_size_multiple") or 16

    def check_config(self) -> None:
        super().check_config()
        check_steps(self.config)

    @property
    def n_group(self) -> int:
        return self.config.first("n_groups", "mamba_n_groups") or 1

    @property
    def n_inner(self) -> int:
        c = self.config
        expand = c.first("mamba_expand", "expand") or 2
        return c.first("mamba_d_ssm", "intermediate_size", "d_inner") or expand * c.need(
            "hidden_size", "d_model", "dim"
        )

    def metadata(self) -> dict[str, Any]:
        c = self.config
        head_dim = c.first("mamba_d_head", "head_dim") or 64
        if self.n_inner % head_dim:
            raise ConvertError(f"{c.path}: {self.n_inner} channels are not divisible into heads of {head_dim}")
        return {
            "context_length": ANY_CONTEXT,
            "embedding_length": c.need("hidden_size", "d_model", "dim"),
            "feed_forward_length": 0,
            "attention.head_count": 0,
            "block_count": self.n_layer,
            "ssm.conv_kernel": c.first("conv_kernel", "d_conv", "mamba_d_conv") or 4,
            "ssm.inner_size": self.n_inner,
            "ssm.state_size": c.first("state_size", "d_state", "mamba_d_state") or 128,
            "ssm.time_step_rank": self.n_inner // head_dim,
            "ssm.group_count": self.n_group,
            "attention.layer_norm_rms_epsilon": float(c.first("layer_norm_epsilon", "rms_norm_eps") or 1e-5),
        }

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        yield from mamba2_tensor(self, name, tensor, self.n_group)


def mamba2_tensor(
    conversion: Conversion, name: str, tensor: LazyTensor, n_group: int
) -> Iterator[tuple[str, LazyTensor]]:
    """Convert a tensor of a Mamba 2 layer: the convolution to a matrix, A and D to columns, norms to groups."""
    new = conversion.names(name)
    if name.endswith(".A_log"):
        tensor = decay(tensor)
    if new.endswith("ssm_conv1d.weight"):
        tensor = tensor.squeeze()
    elif new.endswith((".ssm_a", ".ssm_d")):
        tensor = tensor.reshape(-1, 1)
    elif new.endswith("ssm_norm.weight"):
        tensor = tensor.reshape(n_group, -1)
    yield new, tensor


class FalconH1(Mamba2):
    """Falcon H1: Mamba 2 and attention in parallel; multipliers are folded into the weights."""

    architecture = "falcon-h1"
    needed = {"attention_bias": False}
    vocabularies = ["bpe"]
    pre_tokenizers = ["falcon-h1"]

    def metadata(self) -> dict[str, Any]:
        c = self.config
        return super().metadata() | {
            "vocab_size": c.need("vocab_size"),
            "context_length": c.first("max_position_embeddings") or 0,
            "feed_forward_length": c.need("intermediate_size"),
            "attention.head_count": c.need("num_attention_heads"),
            "attention.head_count_kv": c.need("num_key_value_heads"),
            "attention.key_length": self.head_dim,
            "attention.value_length": self.head_dim,
            "rope.freq_base": float(c.whole_rope.get("rope_theta", 10000.0)),
        }

    def __init__(self, folder: Folder) -> None:
        super().__init__(folder)
        self.n_vocab_multiple = 1

    def check_config(self) -> None:
        super().check_config()
        if self.config.first("mamba_rms_norm") and self.config.get("mamba_norm_before_gate", True):
            raise self.config.unsupported("mamba_norm_before_gate", "False")

    def _multipliers(self) -> dict[str, tuple[float, ...]]:
        """Return multipliers by part of a tensor's name; the first match applies."""
        c = self.config

        def one(name: str) -> float:
            value = c.first(name)
            return 1.0 if value is None else float(value)

        gate, down = (float(multiplier) for multiplier in c.first("mlp_multipliers") or (1.0, 1.0))
        attention = one("attention_in_multiplier")
        return {
            "down_proj": (down,),
            "gate_proj": (gate,),
            "k_proj": (one("key_multiplier"), attention),
            "q_proj": (attention,),
            "v_proj": (attention,),
            "o_proj": (one("attention_out_multiplier"),),
            "out_proj": (one("ssm_out_multiplier"),),
            "in_proj": (one("ssm_in_multiplier"),),
            "lm_head": (one("lm_head_multiplier"),),
            "embed_tokens": (one("embedding_multiplier"),),
        }

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        ((new, made),) = super().convert(name, tensor)
        if new == "token_embd.weight" and "lm_head.weight" not in self.folder.tensors:
            yield "output.weight", tensor * self._multipliers()["lm_head"][0]
        multipliers = next((numbers for part, numbers in self._multipliers().items() if part in name), ())
        for multiplier in multipliers:
            made = made * multiplier
        yield new, self._by_part(made) if ".in_proj." in name else made

    def _by_part(self, tensor: LazyTensor) -> LazyTensor:
        """Multiply the rows of z, x, B, C and dt by one number each."""
        c = self.config
        numbers = c.first("ssm_multipliers") or [1.0] * 5
        shared = self.n_group * c.need("mamba_d_state")
        sizes = (self.n_inner, self.n_inner, shared, shared)
        parts = tensor.split(*sizes, tensor.shape[0] - sum(sizes))
        return concatenate([part * float(by) for part, by in zip(parts, numbers, strict=True)])


class XLSTM(Conversion):
    """xLSTM with a matrix for each projection."""

    architecture = "xlstm"
    needed = {"use_bias": False, "eps": 1e-6, "weight_mode": "single", "add_out_norm": True}
    named_as = "llama"
    pre_tokenizers = ["gpt-2"]
    integers = {"vocab_size": "vocab_size", "attention.head_count": "num_heads"}
    numbers = {"gate_softcapping": "gate_soft_cap", "final_logit_softcapping": "output_logit_soft_cap"}
    constants = {"context_length": ANY_CONTEXT}
    more_names = {
        "backbone.embeddings": "token_embd",
        "backbone.out_norm": "output_norm",
        "backbone.blocks.{}.norm_mlstm": "blk.{}.attn_norm",
        "backbone.blocks.{}.norm_ffn": "blk.{}.ffn_norm",
        **{f"backbone.blocks.{{}}.mlstm_layer.{part}": f"blk.{{}}.attn_{part}" for part in "qkv"},
        **in_layers("backbone.blocks.{}.", "blk.{}.", {
            "mlstm_layer.ogate_preact": "attn_gate", "mlstm_layer.igate_preact": "attn_input_gate",
            "mlstm_layer.fgate_preact": "attn_forget_gate", "mlstm_layer.multihead_norm": "attn_sub_norm",
            "mlstm_layer.out_proj": "attn_output", "ffn.proj_up_gate": "ffn_gate", "ffn.proj_up": "ffn_up",
            "ffn.proj_down": "ffn_down",
        }),
    }  # fmt: skip

    def metadata(self) -> dict[str, Any]:
        c, shapes = self.config, {name: tensor.shape for name, tensor in self.folder.tensors.items()}
        first, n_head = "backbone.blocks.0.", c.need("num_heads")
        sizes = {
            "attention.key_length": ("mlstm_layer.k", n_head),
            "attention.value_length": ("mlstm_layer.v", n_head),
            "feed_forward_length": ("ffn.proj_up", 1),
        }
        if missing := [name for name, _ in sizes.values() if f"{first}{name}.weight" not in shapes]:
            raise ConvertError(f"{self.folder.path}: tensor '{first}{missing[0]}.weight' is missing")
        own = {key: shapes[f"{first}{name}.weight"][0] // parts for key, (name, parts) in sizes.items()}
        return super().metadata() | own
