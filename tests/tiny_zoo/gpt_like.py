"""Decoders with LayerNorm, with one matrix for gate and up, or without a gate in their feed-forward blocks."""

from functools import partial

from tiny_models import ATTENTION, ENDS, TIED, tiny

MHA = {"g": 4}
BIASED_ENDS = "token_embd output_norm+ output"
BIASED_TIED = "token_embd output_norm+"
GPT = "attn_norm+ attn_qkv+ attn_output+ ffn_norm+ ffn_up+ ffn_down+"
SPLIT_GPT = "attn_norm+ attn_q+ attn_k+ attn_v+ attn_output+ ffn_norm+ ffn_up+ ffn_down+"
NO_BIASES = "attn_norm attn_qkv attn_output ffn_norm ffn_up ffn_down"
FUSED_SWIGLU = "ffn_norm ffn_up=2*f,n ffn_down"
LONGROPE_ENDS = f"{ENDS} rope_factors_long rope_factors_short"

layer_norm = partial(tiny, layer_norm=True)
phi3 = partial(
    tiny, "phi3", "attn_norm attn_qkv attn_output ffn_norm ffn_up=2*f,n ffn_down", LONGROPE_ENDS,
    rope__scaling__attn_factor=1.19, attention__sliding_window=8,
)  # fmt: skip
GLM4 = f"attn_norm attn_q+ attn_k+ attn_v+ attn_output post_attention_norm {FUSED_SWIGLU} post_ffw_norm"
glm4 = partial(tiny, "glm4", layer=GLM4)
stablelm = partial(layer_norm, "stablelm", ends=BIASED_ENDS, rope__dimension_count=4)

MODELS = {
    "phi2": layer_norm(
        "phi2", "attn_norm+ attn_qkv+ attn_output+ ffn_up+ ffn_down+", f"{BIASED_ENDS}+", dims=MHA,
        rope__dimension_count=8,
    ),
    "phi3-short": phi3(rope__scaling__original_context_length=256),
    "phi3-long": phi3(rope__scaling__original_context_length=64),
    "falcon-7b": layer_norm("falcon", "attn_norm+ attn_qkv attn_output ffn_up ffn_down", BIASED_TIED, dims={"g": 1}),
    "falcon-40b": layer_norm("falcon", "attn_norm+ attn_norm_2+ attn_qkv attn_output ffn_up ffn_down", BIASED_TIED),
    "gpt2": layer_norm("gpt2", GPT, f"{BIASED_TIED} position_embd", dims=MHA),
    "gptneox-parallel": layer_norm(
        "gptneox", GPT, BIASED_ENDS, dims=MHA, use_parallel_residual=True, rope__dimension_count=4,
    ),
    "gptneox": layer_norm("gptneox", GPT, BIASED_ENDS, dims=MHA, use_parallel_residual=False),
    "stablelm": stablelm(layer="attn_norm+ attn_q+ attn_k+ attn_v+ attn_output ffn_norm+ ffn_gate ffn_up ffn_down"),
    "stablelm-12b": stablelm(
        layer="attn_norm+ attn_q attn_k attn_v attn_output attn_q_norm=h,d attn_k_norm=g,d ffn_gate ffn_up ffn_down",
    ),
    "starcoder2": layer_norm("starcoder2", SPLIT_GPT, BIASED_TIED),
    "starcoder": layer_norm("starcoder", GPT, f"{BIASED_ENDS} position_embd", dims={"g": 1}),
    "starcoder-tied": layer_norm("starcoder", GPT, f"{BIASED_TIED} position_embd", dims={"g": 1}),
    "bloom": layer_norm("bloom", GPT, f"{BIASED_TIED} token_embd_norm+", dims=MHA),
    "bloom-six-heads": layer_norm("bloom", GPT, f"{BIASED_ENDS} token_embd_norm+", dims={"h": 6, "g": 6, "n": 96}),
    "mpt": layer_norm("mpt", NO_BIASES, TIED, dims=MHA, attention__max_alibi_bias=8.0),
    "mpt-bias": layer_norm(
        "mpt", f"{GPT} ffn.act.scales=f", f"{BIASED_ENDS} position_embd", dims=MHA, attention__max_alibi_bias=4.0,
        attention__clamp_kqv=0.5,
    ),
    "mpt-no-alibi": layer_norm("mpt", NO_BIASES, f"{TIED} position_embd", dims=MHA),
    "codeshell": layer_norm("codeshell", SPLIT_GPT, BIASED_ENDS),
    "codeshell-old": layer_norm("codeshell", GPT, BIASED_ENDS.removeprefix("token_embd ")),
    "jais": layer_norm("jais", f"{GPT} ffn_gate+", BIASED_ENDS, dims=MHA, attention__max_alibi_bias=8.0),
    "jais2": layer_norm("jais2", SPLIT_GPT, BIASED_ENDS),
    "nemotron": layer_norm("nemotron", NO_BIASES.replace("_norm", "_norm+"), BIASED_ENDS, rope__dimension_count=8),
    "nemotron-bias": layer_norm("nemotron", SPLIT_GPT, BIASED_ENDS),
    "pockettts": layer_norm(
        "pockettts", "attn_norm+ attn_q attn_k attn_v attn_output ffn_norm+ ffn_up ffn_down", BIASED_TIED,
    ),
    "plamo": tiny("plamo", "attn_norm attn_q attn_k attn_v attn_output ffn_gate ffn_up ffn_down"),
    "chatglm": tiny("chatglm", f"attn_norm attn_qkv+ attn_output {FUSED_SWIGLU}", rope__dimension_count=8),
    "chatglm-tied": tiny("chatglm", f"{ATTENTION} {FUSED_SWIGLU}", TIED, rope__dimension_count=8),
    "glm4": glm4(rope__dimension_count=8), "glm4-vision": glm4(ends=TIED, rope__dimension_sections=[2, 2, 2, 2]),
    "glm4-drafts": glm4(
        layer=[GLM4, f"{GLM4} nextn.eh_proj.weight=n,2*n nextn.enorm.weight=n nextn.hnorm.weight=n"],
        nextn_predict_layers=1,
    ),
}  # fmt: skip
