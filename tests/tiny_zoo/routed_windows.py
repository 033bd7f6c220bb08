"""Mixtures of experts whose layers do not all see the same: windows, chunks, layers without positions."""

from tiny_models import ATTENTION, ENDS, SWIGLU, TIED, YARN
from tiny_zoo.routed import BIAS, EXPERTS, HEAD_NORMS, SHARED, after_dense, routed, twelve

MODELS = {
    "exaone-moe": twelve(
        "exaone-moe", after_dense(f"{ATTENTION} {HEAD_NORMS}", f"{EXPERTS} {BIAS} {SHARED}", n_layer=5),
        f"{ENDS} rope_freqs", dims={"E": 12, "e": 48, "s": 48}, attention__sliding_window=8, expert_gating_func=2,
    ),
    "llama4": routed(
        "llama4", [f"{ATTENTION} {SWIGLU}", f"{ATTENTION} {EXPERTS} {SHARED}"] * 2, f"{ENDS} rope_freqs",
        dims={"e": 48, "s": 48}, expert_used_count=1, interleave_moe_layer_step=2,
    ),
    "llama4-maverick": routed(
        "llama4", f"{ATTENTION} {EXPERTS} {SHARED}", TIED, n_layer=4, dims={"E": 128, "e": 16, "s": 16},
        expert_count=128, expert_feed_forward_length=16, interleave_moe_layer_step=1,
    ),
    "smallthinker": routed(
        "smallthinker", f"{ATTENTION} {EXPERTS}", TIED, n_layer=5, attention__sliding_window=4096, expert_gating_func=2,
    ),
    "smallthinker-4b": routed("smallthinker", f"{ATTENTION} {EXPERTS}", expert_gating_func=1),
    "mellum": routed("mellum", f"{ATTENTION} {HEAD_NORMS} {EXPERTS}", n_layer=5, attention__sliding_window=8, **YARN),
    "mellum-no-windows": routed("mellum", f"{ATTENTION} {HEAD_NORMS} {EXPERTS}", **YARN),
    "maple": routed(
        "maple", f"{ATTENTION} {HEAD_NORMS} {EXPERTS}", n_layer=3, attention__sliding_window=8,
        attention__sliding_window_pattern=[True, False, True], rope__dimension_count_swa=8, rope__freq_base_swa=500.0,
        swiglu_clamp_exp=[0.5, 0.0, 1.0],
    ),
}  # fmt: skip
