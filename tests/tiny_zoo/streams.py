"""Residual streams side by side, and attention to pools of positions: DeepSeek V4, GLM 5.3 Flash."""

from functools import partial

from tiny_models import ENDS, EXPERTS, LONG_IDS, SWIGLU, YARN, tiny

MIXED = "hc_attn_fn=6*C,C*n hc_attn_base=6*C hc_attn_scale=3 hc_ffn_fn=6*C,C*n hc_ffn_base=6*C hc_ffn_scale=3"  # C is 4
SHARED = "ffn_gate_shexp ffn_up_shexp ffn_down_shexp"
MOE = f"{EXPERTS} {SHARED}"
STREAMS = {"hyper_connection__count": 4, "hyper_connection__epsilon": 1e-3, "hyper_connection__sinkhorn_iterations": 3}

KDA = (
    "attn_norm attn_q=h*D,n attn_k=h*D,n attn_v=h*D,n ssm_conv1d_q=h*D,1,4 ssm_conv1d_k=h*D,1,4 ssm_conv1d_v=h*D,1,4 "
    "ssm_f_a=D,n ssm_f_b=h*D,D ssm_dt.bias=h*D ssm_a!=h ssm_beta=h,n ssm_g_a=D,n ssm_g_b=h*D,D ssm_norm=D "
    "attn_output=n,h*D"
)
NOPE = (
    "attn_norm attn_q_a=q,n attn_q_a_norm=q attn_q_b=h*d,q attn_kv_a_mqa=r,n attn_kv_a_norm=r attn_k_b=h,r,d "
    "attn_v_b=h,d,r attn_output=n,h*d"
)
POOLS = (
    "indexer.k_norm.weight=I indexer.k_norm.bias=I indexer.proj.weight=G,n indexer.attn_k.weight=I,n "
    "indexer.attn_q_b.weight=G*I,q indexer_compressor_gate=I,n indexer_compressor_ape=4,I"
)
glm5 = partial(
    tiny, "glm5-next", ends=ENDS, dims={"d": 32, "D": 8, "r": 32, "q": 24, "I": 32, "G": 16, "C": 4},
    attention__head_count_kv=[0, 1, 1, 0], attention__key_length=32, attention__value_length=32,
    attention__key_length_mla=32, attention__value_length_mla=32, attention__q_lora_rank=24, attention__kv_lora_rank=32,
    attention__indexer__head_count=16, attention__indexer__key_length=32, attention__indexer__kpool=4,
    attention__layer_norm_epsilon=1e-6, rope__dimension_count=0, ssm__conv_kernel=4, kda__head_dim=8,
    leading_dense_block_count=1, expert_count=4, expert_used_count=2, expert_shared_count=1,
    expert_feed_forward_length=96, expert_weights_norm=True, expert_weights_scale=2.5, **STREAMS,
)  # fmt: skip

LATENT = (
    "attn_norm attn_sinks attn_q_a=q,n attn_q_a_norm=q attn_q_b=h*d,q attn_kv=d,n attn_kv_a_norm=d "
    "attn_output_a=2*o,h*d//2 attn_output_b=n,2*o"
)
ALL = "attn_compressor_kv=d,n attn_compressor_gate=d,n attn_compressor_ape=128,d attn_compressor_norm=d"
CHOSEN = (
    "attn_compressor_kv=2*d,n attn_compressor_gate=2*d,n attn_compressor_ape=4,2*d attn_compressor_norm=d "
    "indexer_compressor_kv=2*I,n indexer_compressor_gate=2*I,n indexer_compressor_ape=4,2*I "
    "indexer_compressor_norm=I indexer.proj.weight=G,n indexer.attn_q_b.weight=G*I,q"
)
HASHED = f"{MOE} ffn_gate_tid2eid=V,2"
BIASED = f"{MOE} exp_probs_b.bias"
MIXED_END = "output_hc_fn=C,C*n output_hc_base=C output_hc_scale=1"
DEEPSEEK4 = {
    "attention__q_lora_rank": 24, "attention__output_group_count": 2, "attention__output_lora_rank": 16,
    "rope__dimension_count": 32, "expert_count": 4, "expert_used_count": 2, "expert_shared_count": 1,
    "expert_feed_forward_length": 96, "expert_gating_func": 4, "expert_weights_norm": True, "expert_weights_scale": 1.5,
    **STREAMS,
}  # fmt: skip
"""What its layers and those of its drafts have in common."""
deepseek4 = partial(
    tiny, "deepseek4", ends=f"{ENDS} {MIXED_END}", dims={"d": 64, "g": 1, "q": 24, "o": 16, "I": 64, "G": 16, "C": 4},
    attention__sliding_window=8, attention__indexer__head_count=16, attention__indexer__key_length=64,
    attention__indexer__top_k=3, attention__compress_rope_freq_base=500.0, hash_layer_count=1, **DEEPSEEK4,
)  # fmt: skip

MODELS = {
    "glm5-next": glm5(
        [
            f"{KDA} {MIXED} {SWIGLU}", f"{NOPE} {POOLS} {MIXED} {MOE} exp_probs_b.bias",
            f"{NOPE} {MIXED} {MOE} exp_probs_b.bias", f"{KDA} {MIXED} {MOE} exp_probs_b.bias",
        ],
        attention__indexer__top_k=8, attention__indexer__types=[1, 1, 0, 1], kda__gate_lower_bound=-5.0,
        swiglu_clamp_exp=0.5,
    ),
    "glm5-next-short": glm5(
        [f"{KDA} {MIXED} {SWIGLU}", f"{NOPE} {POOLS} {MIXED} {MOE} exp_probs_b.bias"], attention__head_count_kv=[0, 1],
        attention__indexer__top_k=512, expert_gating_func=1, swiglu_clamp_exp=[0.5, 0.5], swiglu_clamp_shexp=[0.0, 0.7],
    ),
    "deepseek4": deepseek4(
        [f"{LATENT} {MIXED} {HASHED}", f"{LATENT} {CHOSEN} {MIXED} {BIASED}", f"{LATENT} {ALL} {MIXED} {BIASED}"],
        ids=LONG_IDS, attention__compress_ratios=[0, 4, 128], swiglu_clamp_exp=0.5, **YARN,
    ),
    "deepseek4-few-pools": deepseek4(
        [f"{LATENT} {CHOSEN} {MIXED} {HASHED}", f"{LATENT} {ALL} {MIXED} {BIASED}"],
        attention__compress_ratios=[4, 128], attention__indexer__top_k=512, swiglu_clamp_exp=[0.0, 0.5],
        swiglu_clamp_shexp=[0.4, 0.0],
    ),
}  # fmt: skip
