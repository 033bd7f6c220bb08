"""Masked diffusion language models: every position sees every other."""

from tiny_models import LLAMA, SWIGLU, TIED, tiny

MODELS = {
    "dream": tiny("dream", f"attn_norm attn_q+ attn_k+ attn_v+ attn_output {SWIGLU}"),
    "dream-tied": tiny("dream", LLAMA, TIED),
    "llada": tiny("llada", LLAMA),
    "llada-fused": tiny("llada", f"attn_norm attn_qkv+ attn_output {SWIGLU}", TIED),
}
