"""Gemma and others with norms on both sides of each block."""

from functools import partial

from tiny_models import LLAMA, SMALL, TIED, tiny

SANDWICH = f"{LLAMA} post_attention_norm post_ffw_norm"
GEMMA = {"d": 32, "g": 1}

gemma2 = partial(tiny, "gemma2", SANDWICH, TIED, attention__sliding_window=8)

MODELS = {
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
