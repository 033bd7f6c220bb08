"""Mixtures of experts."""

from functools import partial

from tiny_models import ATTENTION, EXPERTS, YARN, tiny

four_experts = partial(tiny, expert_count=4, expert_used_count=2, expert_feed_forward_length=96)
gpt_oss = partial(
    four_experts, "gpt-oss",
    "attn_norm attn_q+ attn_k+ attn_v+ attn_output+ attn_sinks post_attention_norm "
    "ffn_gate_inp+ ffn_gate_exps+ ffn_up_exps+ ffn_down_exps+",
    n_layer=3, dims={"d": 32}, attention__sliding_window=8,
)  # fmt: skip

MODELS = {
    "qwen3moe": four_experts("qwen3moe", f"{ATTENTION} attn_q_norm attn_k_norm {EXPERTS}", dims={"d": 32}),
    "gpt-oss": gpt_oss(),
    "gpt-oss-yarn": gpt_oss(**YARN, rope__freq_base=150000.0),
}
