"""Shapes of published models that are recurrent or have experts, in the format of ``tests/tiny_zoo``.

Recurrent models are complete. Models with experts have a few layers, one of each kind of routing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tiny_models import ATTENTION, SWIGLU, TIED, TinyModel, tiny
from tiny_zoo.gemma import EXPERTS_4, GLOBAL, SLIDING
from tiny_zoo.mamba import MAMBA2
from tiny_zoo.recurrent import (
    CHANNELS,
    CONV,
    DENSE,
    FIRST7,
    GATE7,
    GATED,
    LFM2_ENDS,
    MIX7,
    MOE,
    NET,
    OTHERS7,
    RWKV_ENDS,
)
from tiny_zoo.routed import BIAS, EXPERTS, HEAD_NORMS, QKV_BIASES, SHARED

N_VOCAB = 32768


def mamba2(n: int, n_layer: int) -> TinyModel:
    """Mamba 2 (Dao and Gu 2024): heads of 64 values, states of 128."""
    sizes = {"n": n, "i": 2 * n, "s": 128, "G": 1, "H": n // 32, "h": 0, "g": 0, "f": 0, "V": N_VOCAB}
    space = {"inner_size": 2 * n, "state_size": 128, "conv_kernel": 4, "time_step_rank": n // 32, "group_count": 1}
    return tiny(
        "mamba2",
        MAMBA2,
        TIED,
        n_layer=n_layer,
        dims=sizes,
        context_length=8192,
        **{f"ssm__{k}": v for k, v in space.items()},
    )


def qwen35(n: int, n_ff: int, n_layer: int, n_heads: int) -> TinyModel:
    """Qwen 3.5: delta nets with heads of 128 values, gated attention in every fourth layer."""
    sizes = {"n": n, "f": n_ff, "h": n // 128, "g": 2, "d": 256, "K": n_heads, "R": n_heads, "D": 128, "V": N_VOCAB}
    net = f"{NET} ssm_alpha=R,n ssm_beta=R,n {DENSE}"
    space = {"inner_size": 128 * n_heads, "state_size": 128, "conv_kernel": 4, "time_step_rank": n_heads}
    return tiny(
        "qwen35",
        [f"{GATED} {DENSE}" if i % 4 == 3 else net for i in range(n_layer)],
        TIED,
        dims=sizes,
        context_length=8192,
        full_attention_interval=4,
        rope__dimension_count=64,
        rope__dimension_sections=[11, 11, 10, 0],
        ssm__group_count=n_heads,
        **{f"ssm__{k}": v for k, v in space.items()},
    )


def lfm2(n: int, n_ff: int, attends: str) -> TinyModel:
    """LFM2: ``attends`` has a letter per layer, a for attention."""
    attention = f"{ATTENTION} attn_q_norm attn_k_norm {SWIGLU}"
    return tiny(
        "lfm2",
        [attention if letter == "a" else f"{CONV} {SWIGLU}" for letter in attends],
        LFM2_ENDS,
        dims={"n": n, "f": n_ff, "h": n // 64, "g": 8, "d": 64, "V": N_VOCAB},
        attention__head_count_kv=[8 if letter == "a" else 0 for letter in attends],
        context_length=8192,
        shortconv__l_cache=3,
    )


def rwkv7(n: int, n_ff: int, n_layer: int) -> TinyModel:
    """RWKV 7: heads of 64 values."""
    ranks = {"time_mix_w": 64, "time_mix_a": 64, "time_mix_v": 64, "time_mix_g": 128}

    def wide(tensors: str) -> str:
        """Replace the ranks of a tiny model's small matrices by those of a large one."""
        for name, rank in ranks.items():
            tensors = re.sub(rf"{name}1=\d+,n", f"{name}1={rank},n", tensors)
            tensors = re.sub(rf"{name}2=n,\d+", f"{name}2=n,{rank}", tensors)
        return tensors

    mixing = f"attn_norm+ attn_norm_2+ {MIX7} {GATE7} {CHANNELS}"
    return tiny(
        "rwkv7",
        [wide(f"{mixing} {OTHERS7 if i else FIRST7}") for i in range(n_layer)],
        RWKV_ENDS,
        layer_norm=True,
        dims={"n": n, "f": n_ff, "h": 0, "g": 0, "V": N_VOCAB},
        context_length=8192,
        wkv__head_size=64,
        attention__decay_lora_rank=64,
        attention__iclr_lora_rank=64,
        attention__value_residual_mix_lora_rank=64,
        attention__gate_lora_rank=128,
    )


def experts(architecture: str, layer: str, n_used: int, sizes: Mapping[str, int], **keys: Any) -> TinyModel:
    """Four layers. In ``sizes``: E experts of width e, shared experts of width s."""
    fixed = {"expert_count": sizes["E"], "expert_used_count": n_used, "expert_feed_forward_length": sizes["e"]}
    dims = {"f": sizes["e"], "V": N_VOCAB, **sizes}
    return tiny(architecture, layer, n_layer=4, dims=dims, context_length=8192, **fixed | keys)


def gemma4moe(sizes: Mapping[str, int], sliding: int) -> TinyModel:
    """Gemma 4 with experts and a dense block: three layers of ``sliding`` values per head, one of full attention."""
    moe = EXPERTS_4.replace("E,n,32", "E,n,e") + " ffn_gate_up_exps=E,2*e,n"
    narrow = re.sub(r"\b8\b", str(sliding), SLIDING)
    return tiny(
        "gemma4",
        [*[f"{narrow} {moe}"] * 3, f"{GLOBAL} {moe}"],
        f"{TIED} rope_freqs",
        dims={"V": N_VOCAB, **sizes},
        context_length=8192,
        attention__sliding_window_pattern=[True, True, True, False],
        attention__sliding_window=1024,
        attention__key_length_swa=sliding,
        attention__value_length_swa=sliding,
        rope__dimension_count_swa=sliding,
        rope__freq_base=1e6,
        embedding_length_per_layer_input=0,
        expert_count=sizes["E"],
        expert_used_count=8,
        expert_feed_forward_length=sizes["e"],
    )


def lfm2moe(sizes: Mapping[str, int], n_used: int) -> TinyModel:
    """LFM2 with experts: three short convolutions, one layer of attention."""
    moe = f"{EXPERTS} {BIAS}"
    conv = f"{CONV} {moe}"
    return tiny(
        "lfm2moe",
        [conv, conv, f"{ATTENTION} {HEAD_NORMS} {moe}", conv],
        LFM2_ENDS,
        dims={"V": N_VOCAB, **sizes},
        context_length=8192,
        attention__head_count_kv=[0, 0, sizes["g"], 0],
        shortconv__l_cache=3,
        leading_dense_block_count=0,
        expert_count=sizes["E"],
        expert_used_count=n_used,
        expert_feed_forward_length=sizes["e"],
        expert_gating_func=2,
    )


def qwen35moe(sizes: Mapping[str, int]) -> TinyModel:
    """Qwen 3.5 with experts: three delta nets, one layer of attention."""
    net = f"{NET} ssm_alpha=R,n ssm_beta=R,n {MOE}"
    return tiny(
        "qwen35moe",
        [net, net, net, f"{GATED} {MOE}"],
        dims={"V": N_VOCAB, **sizes},
        context_length=8192,
        full_attention_interval=4,
        rope__dimension_count=64,
        rope__dimension_sections=[11, 11, 10, 0],
        expert_count=sizes["E"],
        expert_used_count=8,
        expert_feed_forward_length=sizes["f"],
        expert_shared_feed_forward_length=sizes["S"],
        ssm__group_count=sizes["K"],
        ssm__inner_size=sizes["R"] * sizes["D"],
        ssm__state_size=sizes["D"],
        ssm__conv_kernel=4,
        ssm__time_step_rank=sizes["R"],
    )


OAI = (
    "attn_norm attn_q+ attn_k+ attn_v+ attn_output+ attn_sinks post_attention_norm "
    "ffn_gate_inp+ ffn_gate_exps+ ffn_up_exps+ ffn_down_exps+"
)

RECURRENT = {
    "mamba2-130m": mamba2(768, 24),
    "mamba2-780m": mamba2(1536, 48),
    "mamba2-1.3b": mamba2(2048, 48),
    "qwen35-0.8b": qwen35(1024, 3584, 24, 16),
    "lfm2-350m": lfm2(1024, 4608, "ccaccaccacacacac"),
    "lfm2-1.2b": lfm2(2048, 8192, "ccaccaccacacacac"),
    "rwkv7-1.5b": rwkv7(2048, 8192, 24),
}

ROUTED = {
    "qwen3moe": experts(
        "qwen3moe",
        f"{ATTENTION} {HEAD_NORMS} {EXPERTS}",
        8,
        {"n": 2048, "h": 32, "g": 4, "d": 128, "E": 128, "e": 768},
    ),
    "qwen2moe": experts(
        "qwen2moe",
        f"{QKV_BIASES} {EXPERTS} {SHARED} ffn_gate_inp_shexp=n",
        4,
        {"n": 2048, "h": 16, "g": 16, "d": 128, "E": 60, "e": 1408, "s": 5632},
        expert_shared_feed_forward_length=5632,
    ),
    "bailingmoe2": experts(
        "bailingmoe2",
        f"attn_norm attn_qkv attn_output {HEAD_NORMS} {EXPERTS} {BIAS} {SHARED}",
        8,
        {"n": 2048, "h": 16, "g": 4, "d": 128, "E": 256, "e": 512, "s": 512},
        leading_dense_block_count=0,
        rope__dimension_count=64,
        expert_gating_func=2,
        expert_group_count=8,
        expert_group_used_count=4,
        expert_shared_count=1,
        expert_shared_feed_forward_length=512,
        expert_weights_norm=True,
        expert_weights_scale=2.5,
    ),
    "gpt-oss": experts(
        "gpt-oss",
        OAI,
        4,
        {"n": 2880, "h": 64, "g": 8, "d": 64, "E": 32, "f": 2880, "e": 2880},
        attention__sliding_window=128,
    ),
    "smallthinker": experts(
        "smallthinker",
        f"{ATTENTION} {EXPERTS}",
        6,
        {"n": 2560, "h": 28, "g": 4, "d": 128, "E": 64, "e": 768},
        attention__sliding_window=4096,
        expert_gating_func=2,
    ),
    "granitemoe": experts(
        "granitemoe",
        f"{ATTENTION} {EXPERTS}",
        8,
        {"n": 1536, "h": 24, "g": 8, "d": 64, "E": 40, "e": 512},
        embedding_scale=12.0,
        residual_scale=0.22,
        attention__scale=0.015625,
        logit_scale=6.0,
    ),
    "llama4": experts(
        "llama4",
        f"{ATTENTION} {EXPERTS} {SHARED}",
        1,
        {"n": 5120, "h": 40, "g": 8, "d": 128, "E": 16, "e": 2048, "s": 2048},
        interleave_moe_layer_step=1,
    ),
    "grovemoe": experts(
        "grovemoe",
        f"{ATTENTION} {HEAD_NORMS} {EXPERTS} ffn_gate_chexps=E//2,c,n ffn_up_chexps=E//2,c,n ffn_down_chexps=E//2,n,c",
        8,
        {"n": 2048, "h": 32, "g": 4, "d": 128, "E": 128, "e": 768, "c": 256},
        expert_group_scale=0.05,
        experts_per_group=2,
        expert_chunk_feed_forward_length=256,
    ),
    "glm4moe": experts(
        "glm4moe",
        f"{QKV_BIASES} {EXPERTS} {BIAS} {SHARED}".replace("ffn_norm", "post_attention_norm"),
        8,
        {"n": 4096, "h": 96, "g": 8, "d": 128, "E": 128, "e": 1408, "s": 1408},
        leading_dense_block_count=0,
        rope__dimension_count=64,
        expert_gating_func=2,
        expert_shared_count=1,
        expert_weights_norm=True,
        expert_weights_scale=1.0,
    ),
    "ernie4_5-moe": experts(
        "ernie4_5-moe",
        f"{ATTENTION} {EXPERTS} {BIAS} {SHARED}",
        6,
        {"n": 2560, "h": 20, "g": 4, "d": 128, "E": 64, "e": 1536, "s": 3072},
        interleave_moe_layer_step=1,
        leading_dense_block_count=0,
        expert_shared_count=2,
        expert_shared_feed_forward_length=3072,
    ),
    "lfm2moe": lfm2moe({"n": 2048, "h": 32, "g": 8, "d": 64, "E": 32, "f": 7168, "e": 1792}, 4),
    "gemma4moe": gemma4moe({"n": 2816, "h": 16, "g": 8, "d": 512, "E": 128, "f": 2112, "e": 704}, 256),
    "qwen35moe": qwen35moe(
        {"n": 2048, "h": 16, "g": 2, "d": 256, "E": 256, "f": 512, "S": 512, "K": 16, "R": 32, "D": 128}
    ),
}

MODELS = RECURRENT | ROUTED
