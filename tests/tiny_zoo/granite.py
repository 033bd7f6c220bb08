"""Granite, whose graph multiplies by constants."""

from functools import partial

from tiny_models import ATTENTION, EXPERTS, FUSED_ATTENTION, LLAMA, SWIGLU, TIED, tiny

SCALES = {"embedding_scale": 3.0, "residual_scale": 0.4, "logit_scale": 2.5, "attention__scale": 0.1}

granite = partial(tiny, ends=TIED, **SCALES)

LATENT = "attn_norm attn_kv_a_mqa=r+p,n attn_kv_a_norm=r attn_kv_b=h*(2*d-p),r attn_output"
LATENTS = {"r": 32, "d": 32, "p": 16, "ql": 24}
latent = partial(tiny, dims=LATENTS, attention__head_count_kv=4, attention__kv_lora_rank=32, rope__dimension_count=16)
minicpm3 = partial(
    latent, "minicpm3", f"{LATENT} attn_q_a=ql,n attn_q_a_norm=ql attn_q_b=h*d,ql {SWIGLU}", attention__q_lora_rank=24,
)  # fmt: skip

SINKS = "attn_norm attn_q attn_k attn_v attn_output+ attn_sinks"
PATTERN = {"attention__sliding_window_pattern": [True, False, True], "attention__sliding_window": 8}

OUTPUTS = {"attn_q": "h*d", "attn_k": "g*d", "attn_v": "g*d", "attn_output": "n", "ffn_gate": "f", "ffn_up": "f"}
LORA = " ".join(
    f"{name}.lora_a=4,16,{n_in} {name}.lora_b=4,{n_out},16"
    for name, n_out in (OUTPUTS | {"ffn_down": "n"}).items()
    for n_in in [{"attn_output": "h*d", "ffn_down": "f"}.get(name, "n")]
)

MODELS = {
    "graniteswitch": granite(
        "graniteswitch", f"{FUSED_ATTENTION} {SWIGLU} {LORA}", adapters__count=3, adapters__lora_rank=16,
        adapters__token_ids_activate=[31, 30, 16], adapters__token_ids_substitute=[1, 2, 5],
    ),
    "granite_swa": granite(
        "granite_swa", f"{SINKS} ffn_norm ffn_gate+ ffn_up+ ffn_down+", n_layer=3, attention__rope_pattern=[1, 0, 0],
        **PATTERN,
    ),
    "granite_swa-moe": granite(
        "granite_swa",
        f"{SINKS} ffn_norm ffn_gate_inp ffn_gate_up_exps ffn_down_exps ffn_up_shexp=2*s,n ffn_down_shexp=n,s",
        n_layer=3, dims={"s": 48}, expert_count=4, expert_used_count=2, expert_shared_feed_forward_length=48, **PATTERN,
    ),
    "minicpm": granite("minicpm", LLAMA), "minicpm-old": tiny("minicpm", LLAMA, f"{TIED} output"),
    "plm": latent("plm", f"{LATENT} attn_q ffn_norm ffn_up ffn_down", TIED), "minicpm3": minicpm3(),
    "minicpm3-long": minicpm3(
        ends=f"{TIED} rope_factors_long=p//2 rope_factors_short=p//2", rope__scaling__type="longrope",
        rope__scaling__original_context_length=64, rope__scaling__attn_factor=1.19,
    ),
    "minicpm-long": tiny(
        "minicpm", LLAMA, f"{TIED} rope_factors_long rope_factors_short", rope__scaling__type="longrope",
        rope__scaling__original_context_length=64, rope__scaling__attn_factor=1.19,
    ),
    "granite": granite("granite", LLAMA), "granite-no-rope": granite("granite", LLAMA, rope__scaling__finetuned=False),
    "granitemoe": granite(
        "granitemoe", f"{ATTENTION} {EXPERTS} ffn_gate_shexp=s,n ffn_up_shexp=s,n ffn_down_shexp=n,s", dims={"s": 48},
        expert_count=4, expert_used_count=2, expert_shared_feed_forward_length=48,
    ),
}  # fmt: skip
