"""Attention whose results a gate multiplies, and windows with positions of their own; most with experts."""

from tiny_models import ATTENTION, FUSED_ATTENTION, SWIGLU, TIED, YARN, tiny
from tiny_zoo.routed import BIAS, EXPERTS, HEAD_NORMS, SHARED, SIZES, after_dense, routed, twelve

PER_HEAD, PER_VALUE = "attn_gate=h,n", "attn_gate=h*d,n"
WINDOWS = {"attention__sliding_window": 8, "attention__sliding_window_pattern": [False, True, True]}
AFTER = "post_attention_norm post_ffw_norm"
BIASES = f"{EXPERTS} {BIAS}"

MODELS = {
    "afmoe": twelve(
        "afmoe", after_dense(f"{ATTENTION} {HEAD_NORMS} {PER_VALUE} {AFTER}", f"{BIASES} {SHARED}", n_layer=5),
        dims={"E": 12, "e": 48, "s": 96}, attention__sliding_window=8, rope__freq_base_swa=500.0,
    ),
    "afmoe-none-shared": routed(
        "afmoe", f"{ATTENTION} {HEAD_NORMS} {PER_VALUE} {AFTER} {BIASES}", TIED, n_layer=4, attention__sliding_window=8,
        expert_shared_count=0, expert_gating_func=1,
    ),
    "laguna": twelve(
        "laguna",
        [
            f"{attention} {HEAD_NORMS} {names}".replace("=h,", f"={h},").replace("h*d", f"{h}*d") for h,
            names in ((4, SWIGLU), (2, f"{BIASES} {SHARED}"), (4, f"{BIASES} {SHARED}")) for attention in [
                "attn_norm attn_q=h*d,n attn_k attn_v attn_output=n,h*d attn_gate=h,n",
            ]
        ],
        dims={"E": 12, "e": 48, "s": 32}, attention__head_count=[4, 2, 4], attention__sliding_window=8,
        rope__dimension_count=8, rope__dimension_count_swa=16, rope__freq_base_swa=500.0,
        expert_shared_feed_forward_length=32, **YARN,
    ),
    "laguna-no-windows": routed(
        "laguna", f"{ATTENTION} {HEAD_NORMS} {PER_VALUE} {BIASES} {SHARED}", TIED, dims={"e": 48, "s": 48},
        leading_dense_block_count=0,
    ),
    "muse-glimmer": tiny(
        "muse-glimmer", f"{ATTENTION} {HEAD_NORMS} {PER_VALUE} {AFTER} {SWIGLU}", n_layer=5,
        attention__sliding_window=8, rope__freq_base_swa=500.0, logit_scale=0.7, final_logit_softcapping=2.0,
        rope__scaling__type="linear", rope__scaling__factor=4.0,
    ),
    "muse-glimmer-capped": tiny(
        "muse-glimmer", f"{ATTENTION} {HEAD_NORMS} {PER_VALUE} {AFTER} {SWIGLU}", attention__sliding_window=8,
        logit_scale=20.0,
    ),
    "spark2_5": tiny(
        "spark2_5", f"{ATTENTION} {PER_HEAD} {SWIGLU}", TIED, n_layer=3, rope__dimension_count=16,
        rope__dimension_count_swa=8, rope__freq_base_swa=500.0, rope__scaling__type="linear", rope__scaling__factor=4.0,
        **WINDOWS,
    ),
    "step35": twelve(
        "step35", after_dense(f"{ATTENTION} {HEAD_NORMS} {PER_HEAD}", f"{BIASES} {SHARED}"),
        "token_embd output_norm output rope_freqs", dims={**SIZES, "E": 12, "s": 64}, expert_group_count=None,
        expert_group_used_count=None, expert_shared_count=None, expert_shared_feed_forward_length=64,
        rope__freq_base=500.0, swiglu_clamp_exp=[0.0, 0.5, 0.25], swiglu_clamp_shexp=[0.4, 0.0, 0.3], **WINDOWS,
    ),
    "step35-plain": routed(
        "step35", f"{ATTENTION} {EXPERTS} {SHARED}", n_layer=3, expert_gating_func=1,
        expert_shared_feed_forward_length=96, rope__dimension_count_swa=8, **WINDOWS,
    ),
    "mimo2": routed(
        "mimo2",
        [
            f"attn_norm attn_qkv=h*d+d+v,n attn_output=n,h*v attn_sinks {SWIGLU}",
            f"attn_norm attn_q attn_k=2*d,n attn_v=2*v,n attn_output=n,h*v attn_sinks {BIASES}",
            f"attn_norm attn_q attn_k=d,n attn_v=v,n attn_output=n,h*v {BIASES}",
        ],
        dims={**SIZES, "v": 8}, attention__head_count_kv=[1, 2, 1], attention__value_length=8,
        attention__value_scale=0.7, rope__dimension_count=8, rope__freq_base=500.0, **WINDOWS,
    ),
    "cohere2moe": routed(
        "cohere2moe",
        [f"{ATTENTION} ffn_gate ffn_up ffn_down", *[f"{ATTENTION} {EXPERTS} {SHARED}".replace("ffn_norm ", "")] * 4],
        attention__sliding_window=8, logit_scale=0.25, leading_dense_block_count=1, expert_shared_count=2,
        expert_weights_norm=True, expert_weights_scale=2.0,
    ),
    "cohere2moe-layer-norm": routed(
        "cohere2moe", f"{FUSED_ATTENTION} ffn_gate_inp ffn_gate_up_exps=E,2*e,n ffn_down_exps=E,n,e", TIED, n_layer=5,
        layer_norm=True, attention__sliding_window=8, logit_scale=0.0, leading_dense_block_count=0,
        expert_gating_func=1,
    ),
}  # fmt: skip
