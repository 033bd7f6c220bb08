"""Mixtures of experts with shared experts, leading dense layers, or a routing of their own."""

from functools import partial
from typing import Any

from tiny_models import ATTENTION, FUSED_ATTENTION, SWIGLU, TIED, YARN, tiny

EXPERTS = "ffn_norm ffn_gate_inp ffn_gate_exps=E,e,n ffn_up_exps=E,e,n ffn_down_exps=E,n,e"  # e: an expert's width
SHARED = "ffn_gate_shexp=s,n ffn_up_shexp=s,n ffn_down_shexp=n,s"  # s: that of the shared experts together
HEAD_NORMS = "attn_q_norm attn_k_norm"
WIDE_NORMS = "attn_q_norm=h*d attn_k_norm=g*d"
QKV_BIASES = "attn_norm attn_q+ attn_k+ attn_v+ attn_output"
BIAS = "exp_probs_b.bias"
SIZES = {"e": 48, "s": 96}
SCALES = "ffn_gate_exps.scale ffn_up_exps.scale ffn_down_exps.scale"

routed = partial(tiny, expert_count=4, expert_used_count=2, expert_feed_forward_length=48, dims=SIZES)
twelve = partial(
    routed, dims={**SIZES, "E": 12}, expert_count=12, expert_used_count=3, expert_group_count=4,
    expert_group_used_count=2, expert_shared_count=2, expert_weights_norm=True, expert_weights_scale=2.5,
    leading_dense_block_count=1,
)  # fmt: skip
MHA = {**SIZES, "g": 4}


def after_dense(attention: str, experts: str, n_layer: int = 3) -> list[str]:
    return [f"{attention} {SWIGLU}", *[f"{attention} {experts}"] * (n_layer - 1)]


BLOCKS = after_dense(
    f"{ATTENTION} {HEAD_NORMS}",
    f"{EXPERTS} {BIAS} {SHARED} indexer.q_proj.weight=g*8,n indexer.k_proj.weight=8,n "
    "indexer.q_norm.weight=8 indexer.k_norm.weight=8",
)
MINIMAX_M3: dict[str, Any] = {
    "leading_dense_block_count": 1, "rope__dimension_count": 8, "expert_shared_count": 2, "expert_gating_func": 2,
    "expert_weights_norm": True, "expert_weights_scale": 2.0, "attention__indexer__head_count": 2,
    "attention__indexer__key_length": 8, "attention__indexer__top_k": 16, "attention__indexer__block_size": 32,
    "attention__indexer__local_blocks": 1,
}  # fmt: skip

MODELS = {
    "qwen2moe": routed(
        "qwen2moe", f"{QKV_BIASES} {EXPERTS} {SHARED} ffn_gate_inp_shexp=n", dims={"e": 48, "s": 80},
        expert_shared_feed_forward_length=80,
    ),
    "qwen2moe-no-widths": routed(
        "qwen2moe", f"{QKV_BIASES} {EXPERTS} {SHARED} ffn_gate_inp_shexp=n", expert_feed_forward_length=None,
    ),
    "qwen3moe-no-width": routed(
        "qwen3moe", f"{ATTENTION} {HEAD_NORMS} {EXPERTS} {SCALES}", TIED, expert_feed_forward_length=None,
    ),
    "qwen3vlmoe": routed(
        "qwen3vlmoe", f"{ATTENTION} {HEAD_NORMS} {EXPERTS}", dims={**SIZES, "d": 32},
        rope__dimension_sections=[6, 5, 5, 0],
    ),
    "olmoe": routed(
        "olmoe", f"{ATTENTION} attn_q_norm=n attn_k_norm=n {EXPERTS}", dims={"e": 96, "g": 4},
        expert_feed_forward_length=None,
    ),
    "arctic": routed(
        "arctic", f"{ATTENTION} ffn_norm ffn_gate=n,n ffn_up=n,n ffn_down=n,n ffn_norm_exps {EXPERTS}", TIED,
        dims={"e": 96}, expert_feed_forward_length=None,
    ),
    "bailingmoe": routed(
        "bailingmoe", f"{QKV_BIASES} {EXPERTS} {SHARED}", expert_shared_count=2, expert_weights_norm=True,
        leading_dense_block_count=1,
    ),
    "bailingmoe-scaled": routed(
        "bailingmoe", f"{ATTENTION} {EXPERTS} {SHARED}", expert_shared_count=2, expert_weights_scale=1.5,
    ),
    "bailingmoe2": twelve(
        "bailingmoe2", after_dense(f"{FUSED_ATTENTION} {HEAD_NORMS}", f"{EXPERTS} {BIAS} {SHARED}"),
        dims={**SIZES, "E": 12, "s": 64}, rope__dimension_count=8, expert_gating_func=2,
        expert_shared_feed_forward_length=32,
    ),
    "bailingmoe2-softmax": twelve(
        "bailingmoe2", after_dense(f"{FUSED_ATTENTION} {HEAD_NORMS}", f"{EXPERTS} {SHARED}"), expert_gating_func=1,
        expert_weights_norm=False,
    ),
    "dbrx": routed(
        "dbrx", f"{FUSED_ATTENTION} attn_output_norm ffn_gate_inp ffn_gate_exps ffn_up_exps ffn_down_exps",
        layer_norm=True, attention__clamp_kqv=0.5,
    ),
    "deepseek": routed(
        "deepseek", after_dense(ATTENTION, f"{EXPERTS} {SHARED}"), TIED, leading_dense_block_count=1,
        expert_shared_count=2, expert_weights_scale=1.5,
    ),
    "deepseek2-ocr": routed(
        "deepseek2-ocr", after_dense(ATTENTION, f"{EXPERTS} {SHARED}"), dims=MHA, leading_dense_block_count=1,
        expert_shared_count=2, rope__dimension_count=0,
    ),
    "deepseek2-ocr-sigmoid": routed(
        "deepseek2-ocr", after_dense(ATTENTION, f"{EXPERTS} {BIAS} {SHARED}"), TIED, dims=MHA,
        leading_dense_block_count=1, expert_shared_count=2, expert_gating_func=2, expert_weights_norm=True,
    ),
    "dots1": twelve(
        "dots1", after_dense(f"{ATTENTION} {HEAD_NORMS}", f"{EXPERTS} {BIAS} {SHARED}"), dims={**MHA, "E": 12},
        expert_group_count=None, expert_group_used_count=None, expert_gating_func=2,
    ),
    "dots1-of-chosen": routed(
        "dots1", f"{ATTENTION} {HEAD_NORMS} {EXPERTS} {SHARED}", dims=MHA, expert_shared_count=2, expert_gating_func=3,
    ),
    "ernie4_5-moe": routed(
        "ernie4_5-moe", after_dense(ATTENTION, f"{EXPERTS} {BIAS} {SHARED}"), interleave_moe_layer_step=1,
        leading_dense_block_count=1, expert_shared_feed_forward_length=96,
    ),
    "ernie4_5-moe-none-shared": routed("ernie4_5-moe", f"{ATTENTION} {EXPERTS}", TIED, interleave_moe_layer_step=1),
    "glm4moe": twelve(
        "glm4moe",
        [
            f"{QKV_BIASES} {HEAD_NORMS} {names}".replace("ffn_norm", "post_attention_norm") for names in (
                SWIGLU, f"{EXPERTS} {BIAS} {SHARED}",
            )
        ],
        rope__dimension_count=8,
    ),
    "glm4moe-vision": routed(
        "glm4moe", f"{ATTENTION} {EXPERTS} {BIAS} {SHARED}".replace("ffn_norm", "post_attention_norm"), TIED,
        rope__dimension_sections=[3, 3, 2, 0], expert_shared_count=2, expert_gating_func=1,
    ),
    "grok": routed(
        "grok", f"{ATTENTION} attn_output_norm {EXPERTS} layer_output_norm", TIED, dims={"e": 96},
        expert_feed_forward_length=None,
    ),
    "grok2": routed(
        "grok", f"{ATTENTION} attn_output_norm {SWIGLU} {EXPERTS} post_ffw_norm", **YARN,
        rope__scaling__yarn_beta_fast=4.0, rope__scaling__yarn_beta_slow=0.5, embedding_scale=3.0, logit_scale=0.7,
        attention__output_scale=0.3, attn_logit_softcapping=3.0, final_logit_softcapping=5.0,
    ),
    "grovemoe": routed(
        "grovemoe",
        f"{ATTENTION} {HEAD_NORMS} {EXPERTS} "
        "ffn_gate_chexps=E//2,16,n ffn_up_chexps=E//2,16,n ffn_down_chexps=E//2,n,16",
        TIED, dims={"E": 8, "e": 48}, expert_count=8, expert_used_count=3, expert_group_scale=0.3, experts_per_group=2,
        expert_chunk_feed_forward_length=16,
    ),
    "hunyuan-moe": routed(
        "hunyuan-moe", f"{ATTENTION} {HEAD_NORMS} {EXPERTS} {SHARED}", TIED, dims={"e": 96, "s": 32},
        expert_shared_feed_forward_length=32,
    ),
    "hunyuan-moe-shared-by-default": routed(
        "hunyuan-moe", f"{ATTENTION} {HEAD_NORMS} {EXPERTS} {SHARED}", dims={"e": 96, "s": 96},
    ),
    "hy_v3": twelve(
        "hy_v3",
        after_dense(
            f"{ATTENTION} {HEAD_NORMS}",
            f"ffn_norm ffn_gate_inp exp_probs_b! ffn_gate_up_exps=E,2*e,n ffn_down_exps=E,n,e {SHARED}",
        ),
        dims={**SIZES, "E": 12, "s": 48}, expert_group_count=None, expert_group_used_count=None,
    ),
    "hy_v3-scales": routed(
        "hy_v3", f"{ATTENTION} {HEAD_NORMS} {EXPERTS} {SCALES} {SHARED} ffn_up_shexp.scale ffn_down_shexp.scale", TIED,
        dims={"e": 48, "s": 64}, expert_shared_feed_forward_length=64, expert_gating_func=1,
    ),
    "minimax-m2": routed(
        "minimax-m2", f"{ATTENTION} {WIDE_NORMS} {EXPERTS} {BIAS}", dims={"e": 96}, rope__dimension_count=8,
        expert_gating_func=2,
    ),
    "minimax-m3": routed("minimax-m3", BLOCKS, **MINIMAX_M3),
    "minimax-m3-blocks": routed(
        "minimax-m3", BLOCKS, **MINIMAX_M3 | {"attention__indexer__top_k": 2, "attention__indexer__block_size": 4},
    ),
    "phimoe": routed(
        "phimoe",
        "attn_norm+ attn_q+ attn_k+ attn_v+ attn_output+ ffn_norm+ "
        "ffn_gate_inp ffn_gate_exps ffn_up_exps ffn_down_exps",
        "token_embd output_norm+ output+ rope_factors_long rope_factors_short",
        rope__scaling__original_context_length=64, rope__scaling__attn_factor=1.19,
    ),
}  # fmt: skip
