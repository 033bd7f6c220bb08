"""Short convolutions, delta nets, lightning attention and RWKV."""

from functools import partial

from tiny_models import ATTENTION, EXPERTS, SWIGLU, TIED, tiny

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
    tiny, dims={"K": 2, "R": 4, "D": 8, "S": 48}, full_attention_interval=2, rope__dimension_count=8,
    ssm__conv_kernel=4, ssm__inner_size=32, ssm__state_size=8, ssm__time_step_rank=4, ssm__group_count=2,
)  # fmt: skip
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
FULL_KDA = (
    KDA.replace("ssm_f_a=D,n ssm_f_b=h*D,D", "ssm_f_a=h*D,n")
    .replace("ssm_g_a=D,n ssm_g_b=h*D,D", "ssm_g_a=h*D,n")
    .replace("=h*D,1,4", "=1,h*D,1,4")
)
K3_KDA = KDA.replace("ssm_g_a=D,n ssm_g_b=h*D,D", "ssm_g=h*D,n").replace("ssm_a!=h,1", "ssm_a!=h")
K3_MLA = MLA.replace("attn_q=h*d,n", "attn_q_a=24,n attn_q_a_norm=24 attn_q_b=h*d,24") + " attn_gate=h*d,n"
SCORES = "attn_res_score=n ffn_res_score=n"
KIMI_MOE = f"{EXPERTS} exp_probs_b.bias=E ffn_gate_shexp=f,n ffn_up_shexp=f,n ffn_down_shexp=n,f"
K3_MOE = (
    "ffn_norm ffn_gate_inp ffn_gate_exps=E,f,L ffn_up_exps=E,f,L ffn_down_exps=E,L,f ffn_routed_down=L,n "
    "ffn_routed_up=n,L exp_probs_b.bias=E ffn_gate_shexp=f,n ffn_up_shexp=f,n ffn_down_shexp=n,f"
)

LIGHTNING = "attn_norm attn_qkv=3*h*d,n attn_gate=h*d,n attn_norm_2=h*d attn_output"

kimi = partial(
    tiny, dims={"D": 8, "d": 32, "r": 32, "p": 16, "L": 48}, attention__head_count_kv=[0, 1, 0],
    attention__kv_lora_rank=32, attention__key_length=48, attention__value_length=32, attention__key_length_mla=32,
    attention__value_length_mla=32, rope__dimension_count=16, kda__head_dim=8, ssm__conv_kernel=4,
    leading_dense_block_count=1, expert_count=4, expert_used_count=2, expert_shared_count=1,
    expert_feed_forward_length=96, expert_gating_func=2, expert_weights_scale=2.5,
)  # fmt: skip
k3 = partial(kimi, "kimi-k3", activation__situ_beta=1.5, activation__situ_linear_beta=2.0)
ling3 = partial(kimi, "bailingmoe3", kda__gate_lower_bound=-5.0)

RWKV_ENDS = "token_embd token_embd_norm+ output_norm+ output"
MIX6 = (
    "time_mix_w1=5*e,n time_mix_w2=5,n,e time_mix_lerp_x=1,1,n time_mix_lerp_fused=5,1,1,n time_mix_decay=n "
    "time_mix_decay_w1=e,n time_mix_decay_w2=n,e time_mix_receptance=n,n time_mix_gate=n,n time_mix_output=n,n"
)
KEYS6 = "time_mix_key=n,n time_mix_value=n,n time_mix_first=H,S time_mix_ln=n+"
LERPS = "time_mix_lerp_w=1,1,n time_mix_lerp_k=1,1,n time_mix_lerp_v=1,1,n time_mix_lerp_r=1,1,n time_mix_lerp_g=1,1,n"
CHANNELS = "channel_mix_lerp_k=1,1,n channel_mix_key=f,n channel_mix_value=n,f"
CHANNELS6 = f"{CHANNELS} channel_mix_lerp_r=1,1,n channel_mix_receptance=n,n"
MIX7 = (
    "time_mix_w0=n time_mix_w1=8,n time_mix_w2=n,8 time_mix_a0=n time_mix_a1=6,n time_mix_a2=n,6 time_mix_k_k=n "
    "time_mix_k_a=n time_mix_r_k=n time_mix_key=n,n time_mix_value=n,n time_mix_receptance=n,n time_mix_output=n,n"
)
GATE7 = "time_mix_lerp_fused=6,1,1,n time_mix_g1=12,n time_mix_g2=n,12 time_mix_ln=n+"
FIRST7 = "time_mix_v0=n time_mix_v1=6,n time_mix_v2=n,6"  # layer 0 has them and does not use them
OTHERS7 = "time_mix_v0=n time_mix_v1=4,n time_mix_v2=n,4"
NO_HEADS = {"h": 0, "g": 0, "H": 4, "S": 16, "e": 16}

rwkv6 = partial(
    tiny, n_layer=3, layer_norm=True, dims=NO_HEADS, wkv__head_size=16, time_mix_extra_dim=16, time_decay_extra_dim=16,
)  # fmt: skip
rwkv7 = partial(
    tiny, dims=NO_HEADS | {"n": 128}, wkv__head_size=64,  # llama.cpp's vector code wants no other
    attention__decay_lora_rank=8, attention__iclr_lora_rank=6, attention__value_residual_mix_lora_rank=4,
)  # fmt: skip

MODELS = {
    "rwkv6": rwkv6("rwkv6", f"attn_norm+ attn_norm_2+ {MIX6} {KEYS6} {CHANNELS6}", RWKV_ENDS, rescale_every_n_layers=2),
    "rwkv6-lerps-apart": rwkv6(
        "rwkv6",
        f"attn_norm+ attn_norm_2+ {MIX6} {KEYS6} {CHANNELS6} {LERPS}".replace("time_mix_lerp_fused=5,1,1,n ", ""),
        RWKV_ENDS,
    ),
    "rwkv6qwen2": rwkv6(
        "rwkv6qwen2", f"attn_norm {MIX6} time_mix_key=2*S,n+ time_mix_value=2*S,n+ time_mix_receptance.bias=n {SWIGLU}",
        layer_norm=False, token_shift_count=1, attention__head_count=4, attention__head_count_kv=2,
    ),
    "rwkv7": rwkv7(
        "rwkv7",
        [f"attn_norm+ attn_norm_2+ {MIX7} {GATE7} {CHANNELS} {values}" for values in (FIRST7, OTHERS7, OTHERS7)],
        RWKV_ENDS, layer_norm=True, attention__gate_lora_rank=12,
    ),
    "arwkv7": rwkv7(
        "arwkv7", [f"attn_norm {MIX7} {GATE7} {SWIGLU} {values}" for values in (FIRST7, OTHERS7)], token_shift_count=1,
        attention__gate_lora_rank=12,
    ),
    "arwkv7-no-gate": rwkv7(
        "arwkv7", [f"attn_norm {MIX7} time_mix_lerp_fused=5,1,1,n {SWIGLU} {values}" for values in (FIRST7, OTHERS7)],
        token_shift_count=1,
    ),
    "lfm2": lfm2(
        "lfm2", [f"{CONV} {SWIGLU}", f"{ATTENTION} attn_q_norm attn_k_norm {SWIGLU}", f"{CONV} {SWIGLU}"], LFM2_ENDS,
    ),
    "lfm2-window": lfm2(
        "lfm2", [f"{CONV} {SWIGLU}", f"{ATTENTION} attn_q_norm attn_k_norm {SWIGLU}", f"{CONV} {SWIGLU}"],
        f"{LFM2_ENDS} output", attention__sliding_window=8,
    ),
    "lfm2moe": lfm2(
        "lfm2moe",
        [
            f"{CONV} {SWIGLU}", f"{ATTENTION} attn_q_norm attn_k_norm {EXPERTS} exp_probs_b.bias=E",
            f"{CONV} {EXPERTS} exp_probs_b.bias=E",
        ],
        LFM2_ENDS, leading_dense_block_count=1, expert_count=4, expert_used_count=2, expert_feed_forward_length=96,
        expert_gating_func=2,
    ),
    "qwen3next": next_(
        "qwen3next", [f"{NET} ssm_ba=2*R,n {MOE}", f"{GATED} {MOE}", f"{NET} ssm_ba=2*R,n {MOE}"], **moe,
    ),
    "qwen3next-old": next_(
        "qwen3next", [f"{GATED} {MOE}", f"{OLD_NET} ssm_ba=2*R,n {MOE}"], TIED,
        attention__recurrent_layers=[False, True], **moe,
    ),
    "qwen35": next_(
        "qwen35",
        [f"{NET} ssm_alpha=R,n ssm_beta=R,n {DENSE}", f"{GATED} {DENSE}", f"{NET} ssm_alpha=R,n ssm_beta=R,n {DENSE}"],
        TIED, **ROPE,
    ),
    "qwen35moe": next_(
        "qwen35moe",
        [f"{NET} ssm_alpha=R,n ssm_beta=R,n {MOE}", f"{GATED} {MOE}", f"{NET} ssm_alpha=R,n ssm_beta=R,n {MOE}"],
        **ROPE, **moe,
    ),
    "kimi-linear": kimi("kimi-linear", [f"{KDA} {SWIGLU}", f"{MLA} {KIMI_MOE}", f"{KDA} {KIMI_MOE}"]),
    "kimi-k3": k3(
        [f"{K3_KDA} {SWIGLU} {SCORES}", f"{K3_MLA} {K3_MOE} ffn_routed_norm=L {SCORES}", f"{K3_KDA} {K3_MOE} {SCORES}"],
        ends="token_embd output_norm output output_res_score=n", attention__q_lora_rank=24, kda__gate_lower_bound=-5.0,
        expert_latent_length=48, expert_weights_norm=True, attn_res__block_size=2,
    ),
    "kimi-k3-plain": k3(
        [f"{K3_KDA} {SWIGLU}", f"{MLA} {KIMI_MOE}", f"{K3_KDA} {KIMI_MOE}"], attn_res__block_size=0,
        activation__situ_linear_beta=0.0,
    ),
    "bailingmoe3": ling3(
        [f"{FULL_KDA} {SWIGLU}", f"{MLA} attn_gate=h,n {KIMI_MOE}", f"{FULL_KDA} {KIMI_MOE}"], expert_weights_norm=True,
        swiglu_clamp_exp=[0.0, 0.5, 0.7], swiglu_clamp_shexp=[0.4, 0.0, 0.6],
    ),
    "bailingmoe3-compressed": ling3(
        [
            f"{FULL_KDA} {SWIGLU}",
            f"{MLA} attn_gate=h,n {KIMI_MOE}".replace("attn_q=h*d,n", "attn_q_a=24,n attn_q_a_norm=24 attn_q_b=h*d,24"),
            f"{FULL_KDA} {KIMI_MOE}",
        ],
        attention__q_lora_rank=24, rope__dimension_sections=[4, 2, 2, 0],
    ),
    "minimax-01": tiny(
        "minimax-01", [f"{LIGHTNING} {EXPERTS}", f"{ATTENTION} {EXPERTS}", f"{LIGHTNING} {EXPERTS}"],
        full_attention_interval=2, rope__dimension_count=8, expert_count=4, expert_used_count=2, residual_scale=1.5,
    ),
}  # fmt: skip
