"""Short convolutions, delta nets, lightning attention and RWKV."""

from functools import partial

from tiny_models import ATTENTION, ENDS, EXPERTS, SWIGLU, TIED, tiny

SECOND = [0, 2, 0]  # key heads of three layers of which the second attends
SHARED = "ffn_gate_inp_shexp=n ffn_gate_shexp=S,n ffn_up_shexp=S,n ffn_down_shexp=n,S"

CONV = "attn_norm shortconv.in_proj.weight=3*n,n shortconv.conv.weight=n,3 shortconv.out_proj.weight=n,n"
LFM2_ENDS = "token_embd token_embd_norm=n"
lfm2 = partial(tiny, attention__head_count_kv=SECOND, shortconv__l_cache=3)

NET = (
    "attn_norm attn_qkv=(2*K+R)*D,n attn_gate=R*D,n ssm_conv1d=(2*K+R)*D,4 ssm_dt.bias=R ssm_a!=R ssm_norm=D "
    "ssm_out=n,R*D post_attention_norm"
)
GATED = "attn_norm attn_q=2*h*d,n attn_k attn_v attn_q_norm attn_k_norm attn_output post_attention_norm"
MOE = EXPERTS.removeprefix("ffn_norm ") + f" {SHARED}"
DENSE = SWIGLU.removeprefix("ffn_norm ")
OLD_NET = NET.replace("attn_qkv=(2*K+R)*D,n attn_gate=R*D,n", "ssm_in=(2*K+2*R)*D,n")
next_ = partial(
    tiny,
    dims={"K": 2, "R": 4, "D": 8, "S": 48},
    full_attention_interval=2,
    rope__dimension_count=8,
    ssm__conv_kernel=4,
    ssm__inner_size=32,
    ssm__state_size=8,
    ssm__time_step_rank=4,
    ssm__group_count=2,
)
moe = {
    "expert_count": 4,
    "expert_used_count": 2,
    "expert_feed_forward_length": 96,
    "expert_shared_feed_forward_length": 48,
}
ROPE = {"rope__dimension_sections": [2, 1, 1, 0]}

KDA = (
    "attn_norm attn_q=h*D,n attn_k=h*D,n attn_v=h*D,n ssm_conv1d_q=h*D,1,4 ssm_conv1d_k=h*D,1,4 ssm_conv1d_v=1,h*D,1,4 "
    "ssm_f_a=D,n ssm_f_b=h*D,D ssm_dt.bias=h*D ssm_a!=h,1 ssm_beta=h,n ssm_g_a=D,n ssm_g_b=h*D,D ssm_norm=D "
    "attn_output=n,h*D"
)
MLA = "attn_norm attn_q=h*d,n attn_kv_a_mqa=r+p,n attn_kv_a_norm=r attn_k_b=h,r,d-p attn_v_b=h,d,r attn_output=n,h*d"
KIMI_MOE = f"{EXPERTS} exp_probs_b.bias=E ffn_gate_shexp=f,n ffn_up_shexp=f,n ffn_down_shexp=n,f"

LIGHTNING = "attn_norm attn_qkv=3*h*d,n attn_gate=h*d,n attn_norm_2=h*d attn_output"

MODELS = {
    "lfm2": lfm2(
        "lfm2", [f"{CONV} {SWIGLU}", f"{ATTENTION} attn_q_norm attn_k_norm {SWIGLU}", f"{CONV} {SWIGLU}"], LFM2_ENDS
    ),
    "lfm2-window": lfm2(
        "lfm2",
        [f"{CONV} {SWIGLU}", f"{ATTENTION} attn_q_norm attn_k_norm {SWIGLU}", f"{CONV} {SWIGLU}"],
        f"{LFM2_ENDS} output",
        attention__sliding_window=8,
    ),
    "lfm2moe": lfm2(
        "lfm2moe",
        [
            f"{CONV} {SWIGLU}",
            f"{ATTENTION} attn_q_norm attn_k_norm {EXPERTS} exp_probs_b.bias=E",
            f"{CONV} {EXPERTS} exp_probs_b.bias=E",
        ],
        LFM2_ENDS,
        leading_dense_block_count=1,
        expert_count=4,
        expert_used_count=2,
        expert_feed_forward_length=96,
        expert_gating_func=2,
    ),
    "qwen3next": next_(
        "qwen3next", [f"{NET} ssm_ba=2*R,n {MOE}", f"{GATED} {MOE}", f"{NET} ssm_ba=2*R,n {MOE}"], **moe
    ),
    "qwen3next-old": next_(
        "qwen3next",
        [f"{GATED} {MOE}", f"{OLD_NET} ssm_ba=2*R,n {MOE}"],
        TIED,
        attention__recurrent_layers=[False, True],
        **moe,
    ),
    "qwen35": next_(
        "qwen35",
        [f"{NET} ssm_alpha=R,n ssm_beta=R,n {DENSE}", f"{GATED} {DENSE}", f"{NET} ssm_alpha=R,n ssm_beta=R,n {DENSE}"],
        TIED,
        **ROPE,
    ),
    "qwen35moe": next_(
        "qwen35moe",
        [f"{NET} ssm_alpha=R,n ssm_beta=R,n {MOE}", f"{GATED} {MOE}", f"{NET} ssm_alpha=R,n ssm_beta=R,n {MOE}"],
        **ROPE,
        **moe,
    ),
    "kimi-linear": tiny(
        "kimi-linear",
        [f"{KDA} {SWIGLU}", f"{MLA} {KIMI_MOE}", f"{KDA} {KIMI_MOE}"],
        ENDS,
        dims={"D": 8, "d": 32, "r": 32, "p": 16},
        attention__head_count_kv=[0, 1, 0],
        attention__kv_lora_rank=32,
        attention__key_length=48,
        attention__value_length=32,
        attention__key_length_mla=32,
        attention__value_length_mla=32,
        rope__dimension_count=16,
        kda__head_dim=8,
        ssm__conv_kernel=4,
        leading_dense_block_count=1,
        expert_count=4,
        expert_used_count=2,
        expert_shared_count=1,
        expert_feed_forward_length=96,
        expert_gating_func=2,
        expert_weights_scale=2.5,
    ),
    "minimax-01": tiny(
        "minimax-01",
        [f"{LIGHTNING} {EXPERTS}", f"{ATTENTION} {EXPERTS}", f"{LIGHTNING} {EXPERTS}"],
        full_attention_interval=2,
        rope__dimension_count=8,
        expert_count=4,
        expert_used_count=2,
        residual_scale=1.5,
    ),
}
