"""Multi-head latent attention: DeepSeek 2 and what followed."""

from collections.abc import Mapping, Sequence
from typing import Any

from tiny_models import DIMS, ENDS, EXPERTS, SMALL, SWIGLU, YARN, TinyModel, tiny

SHARED = "ffn_gate_shexp ffn_up_shexp ffn_down_shexp"
LATENT = "attn_norm attn_kv_a_mqa=r+p,n attn_kv_a_norm=r attn_output"
QUERIES = "attn_q_a=ql,n attn_q_a_norm=ql attn_q_b=h*d,ql"
ABSORBED = "attn_k_b=h,r,d-p attn_v_b=h,d,r"
SLIDING = (  # latents of 48 values, heads of 48 for keys and 16 for values
    "attn_norm attn_q_a=ql,n attn_q_a_norm=ql attn_q_b=h*48,ql attn_kv_a_mqa=48+p,n attn_kv_a_norm=48 "
    "attn_k_b=h,48,48-p attn_v_b=h,16,48 attn_output=n,h*16"
)
STREAMS = "hc_attn_fn=2*C,C*n hc_attn_base=2*C hc_attn_scale=2 hc_ffn_fn=2*C,C*n hc_ffn_base=2*C hc_ffn_scale=2"
INDEXER = (
    "indexer.attn_q_b.weight=hi*di,ql indexer.attn_k.weight=di,n "
    "indexer.k_norm.weight=di indexer.k_norm.bias=di indexer.proj.weight=hi,n"
)
GATED = f"{LATENT} {QUERIES} {ABSORBED} attn_gate=h*d,n attn_sinks {STREAMS}"
BIASED = f"{EXPERTS} exp_probs_b.bias {SHARED}"
ABSORBED_ONE_HEAD = "attn_k_b=r,d-p attn_v_b=d,r"  # ggml drops a last dimension of 1

WIDER = {"d": 32}  # heads whose parts are as wide as vectors
INDEXED: dict[str, Any] = {
    "attention__indexer__head_count": 16,
    "attention__indexer__key_length": 64,
    "attention__indexer__top_k": 10,
}


def deepseek2(
    n_layer: int = 3,
    attention: str = f"{LATENT} {QUERIES} {ABSORBED}",
    experts: str = f"{EXPERTS} {SHARED}",
    dims: Mapping[str, int] | None = None,
    architecture: str = "deepseek2",
    ends: str = ENDS,
    layers: Sequence[str] = (),
    **keys: Any,
) -> TinyModel:
    """``r`` values of a latent, ``p`` of a head with positions, ``ql`` of compressed queries."""
    sizes = DIMS | dict(dims or {})
    sizes = {"r": 2 * sizes["d"], "p": sizes["d"] // 2, "ql": 24, "hi": 16, "di": 64, "C": 3} | sizes
    compressed = {"attention__q_lora_rank": sizes["ql"]} if "attn_q_a" in attention else {}
    mla = {
        "attention__head_count_kv": 1,
        "attention__key_length": sizes["r"] + sizes["p"],
        "attention__value_length": sizes["r"],
        "attention__key_length_mla": sizes["d"],
        "attention__value_length_mla": sizes["d"],
    }
    common = {
        "attention__kv_lora_rank": sizes["r"],
        "rope__dimension_count": sizes["p"],
        "leading_dense_block_count": 1,
        "expert_count": sizes["E"],
        "expert_used_count": 2,
        "expert_shared_count": 1,
        "expert_feed_forward_length": sizes["f"],
    }
    heads = mla if "attn_k_b" in attention else {"attention__head_count_kv": sizes["h"]}
    layers = layers or [f"{attention} {SWIGLU}", *[f"{attention} {experts}"] * (n_layer - 1)]
    return tiny(architecture, layers, ends, dims=sizes, **common | compressed | heads | keys)


HUNYUAN_4: dict[str, Any] = {
    "ends": f"{ENDS} output_hc_fn=C,C*n output_hc_base=C output_hc_scale=1", "architecture": "hy_v4", "dims": WIDER,
    "expert_gating_func": 2, "expert_weights_norm": True, "expert_weights_scale": 2.5,
    "swiglu_clamp_exp": [0.0, 0.5, 0.0], "hyper_connection__count": 3, "hyper_connection__epsilon": 1e-3,
    "hyper_connection__magnitude": 1.5,
}  # fmt: skip


MODELS = {
    "deepseek2": deepseek2(), "deepseek2-lite": deepseek2(27, f"{LATENT} attn_q attn_kv_b=h*(2*d-p),r", dims=SMALL),
    "deepseek2-one-head": deepseek2(2, f"{LATENT} {QUERIES} {ABSORBED_ONE_HEAD}", dims={"h": 1, "d": 64}),
    "deepseek2-v3": deepseek2(
        experts=f"ffn_norm ffn_gate_inp exp_probs_b.bias ffn_gate_up_exps ffn_down_exps {SHARED}", dims={"E": 12},
        expert_group_count=4, expert_group_used_count=2, expert_gating_func=2, expert_weights_norm=True,
        expert_weights_scale=2.5,
    ),
    "mistral4": deepseek2(
        architecture="mistral4", dims=WIDER, experts="ffn_norm ffn_gate_inp ffn_gate_up_exps ffn_down_exps " + SHARED,
        **YARN, rope__scaling__yarn_log_multiplier=0.0707, attention__temperature_scale=0.5,
        attention__temperature_length=8, expert_weights_norm=True,
    ),
    "deepseek32": deepseek2(
        attention=f"{LATENT} {QUERIES} {ABSORBED} {INDEXER}",
        experts=f"{EXPERTS} exp_probs_b.bias {SHARED} ffn_gate_exps.scale ffn_down_exps.scale",
        architecture="deepseek32", dims=WIDER, **INDEXED, **YARN, rope__scaling__yarn_log_multiplier=0.0707,
        expert_gating_func=2, expert_weights_norm=True, expert_weights_scale=2.5,
    ),
    "glm-dsa": deepseek2(
        attention=f"{LATENT} {QUERIES} {ABSORBED} {INDEXER}", experts=f"{EXPERTS} exp_probs_b.bias {SHARED}",
        architecture="glm-dsa", dims=WIDER, **INDEXED, attention__indexer__types=[1, 0, 1], expert_weights_norm=True,
    ),
    "glm-dsa-short": deepseek2(
        2, attention=f"{LATENT} {QUERIES} {ABSORBED} {INDEXER}", experts=f"{EXPERTS} {SHARED}", architecture="glm-dsa",
        dims=WIDER, **INDEXED | {"attention__indexer__top_k": 512},
    ),
    "hy_v4": deepseek2(attention=GATED, experts=BIASED, **HUNYUAN_4),
    "hy_v4-indexed": deepseek2(
        layers=[f"{GATED} {INDEXER} {SWIGLU}", f"{GATED} {BIASED}", f"{GATED} {INDEXER} {BIASED}"],
        **HUNYUAN_4 | INDEXED, attention__indexer__types=[1, 0, 1],
    ),
    "dots3note": deepseek2(
        4, ends=ENDS,
        layers=[
            f"{attention} attn_k_norm=p attn_gate=h,n {names}" for attention,
            names in (
                (f"{LATENT} {QUERIES} {ABSORBED} {INDEXER}", SWIGLU), (SLIDING, f"{EXPERTS} exp_probs_b.bias {SHARED}"),
                (f"{LATENT} {QUERIES} {ABSORBED} {INDEXER}", f"{EXPERTS} exp_probs_b.bias {SHARED}"),
                (SLIDING, f"{EXPERTS} exp_probs_b.bias {SHARED}"),
            )
        ],
        architecture="dots3note", dims=WIDER, **INDEXED, attention__indexer__types=[1, 0, 1, 0],
        attention__sliding_window=8, attention__sliding_window_pattern=[False, True, False, True],
        attention__kv_lora_rank_swa=48, attention__key_length_swa=64, attention__value_length_swa=48,
        attention__key_length_mla_swa=48, attention__value_length_mla_swa=16, rope__freq_base_swa=500.0,
        expert_gating_func=2, expert_weights_norm=True,
    ),
    "deepseek2-drafts": deepseek2(2, block_count=3, nextn_predict_layers=1),
    "deepseek2-temperature": deepseek2(2, attention__temperature_scale=0.5, attention__temperature_length=8),
}  # fmt: skip
