"""Decoders with RMSNorm and SwiGLU."""

from tiny_models import ATTENTION, EXPERTS, LLAMA, SWIGLU, TIED, tiny

BIASES = "attn_norm attn_q+ attn_k+ attn_v+ attn_output+ ffn_norm ffn_gate+ ffn_up+ ffn_down+"
QKV_BIASES = f"attn_norm attn_q+ attn_k+ attn_v+ attn_output {SWIGLU}"

MODELS = {
    "llama-bias": tiny("llama", BIASES),
    "llama-moe": tiny(  # one matrix for queries, keys and values but a bias for each, and scales on experts
        "llama",
        "attn_norm attn_qkv attn_q.bias attn_k.bias attn_v.bias attn_output "
        f"{EXPERTS} ffn_gate_exps.scale ffn_up_exps.scale ffn_down_exps.scale",
        expert_count=4,
        expert_used_count=2,
    ),
    "qwen2": tiny("qwen2", QKV_BIASES, TIED, rope__freq_base=1e6),
    "qwen3": tiny("qwen3", f"{ATTENTION} attn_q_norm attn_k_norm {SWIGLU}", dims={"d": 32}),
    "smollm3": tiny("smollm3", LLAMA, n_layer=4),
}
