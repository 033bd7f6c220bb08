"""Gemma and others with norms on both sides of each block."""

from functools import partial

from tiny_models import LLAMA, SMALL, TIED, tiny

SANDWICH = f"{LLAMA} post_attention_norm post_ffw_norm"
GEMMA = {"d": 32, "g": 1}

gemma2 = partial(tiny, "gemma2", SANDWICH, TIED, attention__sliding_window=8)

plamo3 = partial(
    tiny,
    "plamo3",
    "attn_norm attn_qkv attn_q_norm attn_k_norm attn_output post_attention_norm!=n "
    "ffn_norm ffn_up=2*f,n ffn_down post_ffw_norm!=n",
    n_layer=3,
)

MODELS = {
    "plamo3": plamo3(
        attention__sliding_window=8,
        attention__sliding_window_pattern=2,
        rope__freq_base=1e6,
        rope__scaling__type="linear",
        rope__scaling__factor=8.0,
    ),
    "plamo3-no-window": plamo3(ends=TIED),
    "gemma": tiny("gemma", LLAMA, TIED, dims=GEMMA),
    "gemma2": gemma2(dims=GEMMA, attn_logit_softcapping=2.0),
    "gemma2-27b": gemma2(dims=SMALL | {"d": 16}, n_layer=46),
    "gemma3": tiny(
        "gemma3",
        f"{SANDWICH} attn_q_norm attn_k_norm",
        TIED,
        n_layer=7,
        dims=GEMMA,
        attention__sliding_window=8,
        rope__freq_base=1e6,
        rope__scaling__type="linear",
        rope__scaling__factor=8.0,
    ),
}
