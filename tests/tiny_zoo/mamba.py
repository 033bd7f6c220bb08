"""State spaces, and their hybrids with attention."""

from functools import partial

from tiny_models import ATTENTION, ENDS, EXPERTS, LLAMA, SWIGLU, TIED, tiny

mamba = partial(
    tiny, "mamba", "attn_norm ssm_in=2*i,n ssm_conv1d=i,4+ ssm_x=3+2*s,i ssm_dt=i,3+ ssm_a!=i,s ssm_d!=i ssm_out=n,i",
    TIED, dims={"i": 128, "s": 8, "h": 0, "g": 0, "f": 0}, ssm__inner_size=128, ssm__state_size=8, ssm__conv_kernel=4,
    ssm__time_step_rank=3,
)  # fmt: skip

MAMBA = (
    "attn_norm ssm_in=2*i,n ssm_conv1d=i,4+ ssm_x=3+2*s,i ssm_dt_norm=3 ssm_b_norm=s ssm_c_norm=s ssm_dt=i,3+ "
    "ssm_a!=i,s ssm_d!=i ssm_out=n,i"
)
MAMBA2 = (
    "attn_norm ssm_in=2*i+2*G*s+H,n ssm_conv1d=i+2*G*s,4+ ssm_dt.bias=H ssm_a!=H,1 ssm_d!=H,1 ssm_norm=G,i//G "
    "ssm_out=n,i"
)
PLAMO_MAMBA = (
    "attn_norm ssm_in=2*i,n ssm_conv1d=i,4 ssm_x=64+2*s,i ssm_b_norm!=s ssm_c_norm!=s ssm_dt_norm!=64 "
    "ssm_dt=H,64+ ssm_a!=H ssm_d!=H ssm_out=n,i"
)
SPACE = {"ssm__inner_size": 128, "ssm__state_size": 8, "ssm__conv_kernel": 4}
HEADS = SPACE | {"ssm__time_step_rank": 8, "ssm__group_count": 2}
DIMS = {"i": 128, "s": 8, "G": 2, "H": 8}
SECOND = [0, 2, 0]  # key heads of three layers of which the second attends
SHARED = "ffn_up_shexp=S,n ffn_down_shexp=n,S"

granitehybrid = partial(
    tiny, "granitehybrid", ends=TIED, attention__head_count_kv=SECOND, embedding_scale=3.0, residual_scale=0.4,
    attention__scale=0.1, **HEADS,
)  # fmt: skip
nemotron_h = partial(tiny, ends=ENDS, layer_norm=True, attention__head_count_kv=[0, 0, 2, 0], **HEADS)

MODELS = {
    "mamba": mamba(), "falcon-mamba": mamba(ssm__dt_b_c_rms=True),
    "mamba2": tiny("mamba2", MAMBA2, TIED, dims=DIMS | {"h": 0, "g": 0, "f": 0}, **HEADS),
    "mamba2-one-group": tiny(
        "mamba2", MAMBA2, dims=DIMS | {"h": 0, "g": 0, "f": 0, "G": 1}, **HEADS | {"ssm__group_count": 1},
    ),
    "jamba": tiny(
        "jamba", [f"{MAMBA} {SWIGLU}", f"{ATTENTION} {EXPERTS}", f"{MAMBA} {EXPERTS}"], dims=DIMS,
        attention__head_count_kv=SECOND, expert_count=4, expert_used_count=2, ssm__time_step_rank=3, **SPACE,
    ),
    "falcon-h1": tiny(
        "falcon-h1", f"{LLAMA} {MAMBA2}".replace("ffn_norm", "ffn_norm!=n").replace("ffn_gate ", "ffn_gate+ "),
        dims=DIMS, **HEADS,
    ),
    "falcon-h1-no-norm": tiny(
        "falcon-h1", f"{LLAMA} {MAMBA2}".replace("ffn_norm", "ffn_norm!=n").replace(" ssm_norm=G,i//G", ""), TIED,
        dims=DIMS, **HEADS,
    ),
    "granitehybrid": granitehybrid(
        [f"{MAMBA2} {SWIGLU}", LLAMA, f"{MAMBA2} {SWIGLU}"], dims=DIMS, logit_scale=2.5, rope__scaling__finetuned=False,
    ),
    "granitehybrid-moe": granitehybrid(
        [
            f"{mixer} {EXPERTS} ffn_gate_shexp=S,n ffn_up_shexp=S,n ffn_down_shexp=n,S" for mixer in (
                MAMBA2, ATTENTION, MAMBA2,
            )
        ],
        dims=DIMS | {"S": 48}, expert_count=4, expert_used_count=2, expert_shared_feed_forward_length=48,
    ),
    "nemotron_h": nemotron_h(
        "nemotron_h", [MAMBA2, "attn_norm ffn_up+ ffn_down+", f"{ATTENTION} attn_output.bias", MAMBA2], dims=DIMS,
        feed_forward_length=[0, 96, 0, 0],
    ),
    "nemotron_h_moe": nemotron_h(
        "nemotron_h_moe",
        [
            MAMBA2, f"attn_norm ffn_gate_inp exp_probs_b.bias=E ffn_up_exps=E,f,n ffn_down_exps=E,n,f {SHARED}",
            ATTENTION, f"attn_norm ffn_gate_inp exp_probs_b.bias=E ffn_up_exps=E,f,n ffn_down_exps=E,n,f {SHARED}",
        ],
        dims=DIMS | {"S": 48}, feed_forward_length=[0, 96, 0, 96], attention__layer_norm_rms_epsilon=1e-6,
        expert_count=4, expert_used_count=[0, 2, 0, 3], expert_feed_forward_length=96,
        expert_shared_feed_forward_length=48, expert_weights_norm=True, expert_weights_scale=2.5,
    ),
    "nemotron_h_moe-latent": nemotron_h(
        "nemotron_h_moe",
        [
            MAMBA2,
            f"attn_norm ffn_latent_down=L,n ffn_latent_up=n,L ffn_gate_inp exp_probs_b.bias=E "
            f"ffn_up_exps=E,f,L ffn_down_exps=E,L,f {SHARED}",
            ATTENTION, MAMBA2,
        ],
        dims=DIMS | {"S": 48, "L": 32}, feed_forward_length=[0, 96, 0, 0], moe_latent_size=32, expert_count=4,
        expert_used_count=2, expert_feed_forward_length=96, expert_shared_feed_forward_length=48,
    ),
    "plamo2": tiny(
        "plamo2",
        [
            f"{mixer} post_attention_norm!=n ffn_norm ffn_up=2*f,n ffn_down post_ffw_norm!=n" for mixer in (
                PLAMO_MAMBA, "attn_norm attn_qkv attn_q_norm=h,d attn_k_norm=g,d attn_output", PLAMO_MAMBA,
            )
        ],
        TIED, dims=DIMS, attention__head_count_kv=SECOND, ssm__time_step_rank=8, ssm__group_count=0, **SPACE,
    ),
}  # fmt: skip
