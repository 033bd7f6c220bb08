"""Decoders with LayerNorm, most of them without a gate in their feed-forward blocks."""

from functools import partial

from tiny_models import ENDS, tiny

MHA = {"g": 4}
BIASED_ENDS = "token_embd output_norm+ output"
BIASED_TIED = "token_embd output_norm+"
GPT = "attn_norm+ attn_qkv+ attn_output+ ffn_norm+ ffn_up+ ffn_down+"
LONGROPE_ENDS = f"{ENDS} rope_factors_long rope_factors_short"

layer_norm = partial(tiny, layer_norm=True)
phi3 = partial(
    tiny,
    "phi3",
    "attn_norm attn_qkv attn_output ffn_norm ffn_up=2*f,n ffn_down",
    LONGROPE_ENDS,
    rope__scaling__attn_factor=1.19,
    attention__sliding_window=8,
)
stablelm = partial(layer_norm, "stablelm", ends=BIASED_ENDS, rope__dimension_count=4)

MODELS = {
    "phi2": layer_norm(
        "phi2",
        "attn_norm+ attn_qkv+ attn_output+ ffn_up+ ffn_down+",
        f"{BIASED_ENDS}+",
        dims=MHA,
        rope__dimension_count=8,
    ),
    "phi3-short": phi3(rope__scaling__original_context_length=256),
    "phi3-long": phi3(rope__scaling__original_context_length=64),
    "falcon-7b": layer_norm("falcon", "attn_norm+ attn_qkv attn_output ffn_up ffn_down", BIASED_TIED, dims={"g": 1}),
    "falcon-40b": layer_norm("falcon", "attn_norm+ attn_norm_2+ attn_qkv attn_output ffn_up ffn_down", BIASED_TIED),
    "gpt2": layer_norm("gpt2", GPT, f"{BIASED_TIED} position_embd", dims=MHA),
    "gptneox-parallel": layer_norm(
        "gptneox", GPT, BIASED_ENDS, dims=MHA, use_parallel_residual=True, rope__dimension_count=4
    ),
    "gptneox": layer_norm("gptneox", GPT, BIASED_ENDS, dims=MHA, use_parallel_residual=False),
    "stablelm": stablelm(layer="attn_norm+ attn_q+ attn_k+ attn_v+ attn_output ffn_norm+ ffn_gate ffn_up ffn_down"),
    "stablelm-12b": stablelm(
        layer="attn_norm+ attn_q attn_k attn_v attn_output attn_q_norm=h,d attn_k_norm=g,d ffn_gate ffn_up ffn_down"
    ),
    "starcoder2": layer_norm(
        "starcoder2", "attn_norm+ attn_q+ attn_k+ attn_v+ attn_output+ ffn_norm+ ffn_up+ ffn_down+", BIASED_TIED
    ),
}
