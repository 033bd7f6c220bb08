"""Masked diffusion language models: every position sees every other."""

from tiny_models import ATTENTION, LLAMA, SWIGLU, TIED, tiny
from tiny_zoo.routed import EXPERTS, HEAD_NORMS, routed

MODELS = {
    "dream": tiny("dream", f"attn_norm attn_q+ attn_k+ attn_v+ attn_output {SWIGLU}"),
    "dream-tied": tiny("dream", LLAMA, TIED),
    "llada": tiny("llada", LLAMA),
    "llada-fused": tiny("llada", f"attn_norm attn_qkv+ attn_output {SWIGLU}", TIED),
    "rnd1": routed("rnd1", f"{ATTENTION} {HEAD_NORMS} {EXPERTS}", TIED),
    "llada-moe": routed("llada-moe", f"{ATTENTION} {HEAD_NORMS} {EXPERTS}", expert_feed_forward_length=None),
}
