"""Granite, whose graph multiplies by constants."""

from functools import partial

from tiny_models import ATTENTION, EXPERTS, LLAMA, TIED, tiny

SCALES = {"embedding_scale": 3.0, "residual_scale": 0.4, "logit_scale": 2.5, "attention__scale": 0.1}

granite = partial(tiny, ends=TIED, **SCALES)

MODELS = {
    "granite": granite("granite", LLAMA),
    "granite-no-rope": granite("granite", LLAMA, rope__scaling__finetuned=False),
    "granitemoe": granite(
        "granitemoe",
        f"{ATTENTION} {EXPERTS} ffn_gate_shexp=s,n ffn_up_shexp=s,n ffn_down_shexp=n,s",
        dims={"s": 48},
        expert_count=4,
        expert_used_count=2,
        expert_shared_feed_forward_length=48,
    ),
}
