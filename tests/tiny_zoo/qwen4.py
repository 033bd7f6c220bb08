"""Qwen4-Exp: delta nets and gated attention in residual streams, an indexer of blocks, rows for n-grams."""

from functools import partial

import numpy as np

from tiny_models import EXPERTS, LONG_IDS, tiny

MIXED = "hc_attn_norm=C*n hc_attn_down=L,C*n hc_attn_up=C*n,L hc_attn_inject=C,C*n"
MIXED += " " + MIXED.replace("attn", "ffn")
NET = (
    "attn_qkv=(2*K+R)*D,n attn_gate=R*D,n ssm_conv1d=(2*K+R)*D,4 ssm_dt.bias=R ssm_a!=R ssm_norm=D ssm_out=n,R*D "
    f"ssm_alpha=R,n ssm_beta=R,n {MIXED}"
)
INDEXER = "indexer.q_proj.weight=G*I,n indexer.k_proj.weight=I,n indexer.q_norm.weight=I indexer.k_norm.weight=I"
GATED = f"attn_q=2*h*d,n attn_k attn_v attn_q_norm attn_k_norm attn_output {INDEXER} {MIXED}"
SHARED = "ffn_gate_inp_shexp=n ffn_gate_shexp=S,n ffn_up_shexp=S,n ffn_down_shexp=n,S"
MOE = EXPERTS.removeprefix("ffn_norm ") + f" {SHARED}"
FUSED_MOE = MOE.replace("ffn_gate_exps ffn_up_exps", "ffn_gate_up_exps")
NGRAMS = "ple_key=C*n,n ple_value=n,n ple_norm_key=C*n ple_norm_query=C*n ple_norm_conv=C*n ple_conv1d=C*n,{}"
HEAD = "output_hc_norm=C*n output_hc_down=L,C*n output_hc_up=C*n,L"


def in_rows(entries: str) -> str:
    """With a row for each stream in the weights of norms."""
    return " ".join(each.replace("=C*n", "=C,n") if "norm" in each else each for each in entries.split())


def ngrams(layer: int, n: int, heads: int, sizes: list[int], eos: int, taps: int) -> dict[str, object]:
    multipliers = [0x9E3779B97F4A7C15, 0x1D3F5B7A9C11, 0xF1357AEA2E62A9C5, 0x2545F4914F6D][:n]
    return {
        "ple__layers": [layer],
        "ple__ngram_size": n,
        "ple__heads_per_ngram": heads,
        "ple__conv_kernel": taps,
        "ple__eos_token_id": eos,
        "ple__layer_multipliers": np.array(multipliers, np.uint64),
        "ple__head_vocab_sizes": np.array(sizes, np.uint64),
        "ple__head_offsets": np.array([sum(sizes[:i]) for i in range(len(sizes))], np.uint64),
        "embedding_length_per_layer_input": 64 // len(sizes),
    }


qwen4 = partial(
    tiny, "qwen4exp", dims={"K": 2, "R": 4, "D": 8, "S": 48, "C": 4, "L": 24, "G": 16, "I": 32},
    full_attention_interval=2, rope__dimension_count=8, rope__dimension_sections=[2, 1, 1, 0], ssm__conv_kernel=4,
    ssm__inner_size=32, ssm__state_size=8, ssm__time_step_rank=4, ssm__group_count=2, expert_count=4,
    expert_used_count=2, expert_feed_forward_length=96, expert_shared_feed_forward_length=48, hyper_connection__count=4,
    hyper_connection__low_rank=24, attention__indexer__head_count=16, attention__indexer__key_length=32,
)  # fmt: skip

MODELS = {
    "qwen4exp": qwen4(
        [f"{NET} {MOE}", f"{GATED} {MOE}", f"{NET} {NGRAMS.format(4)} {MOE}", f"{GATED} {FUSED_MOE}"],
        f"token_embd output per_layer_token_embd=176,16 {HEAD}", attention__indexer__top_k=8,
        attention__compress_ratios=[0, 1, 0, 0], **ngrams(2, 3, 2, [37, 41, 43, 47], eos=17, taps=4),
    ),
    "qwen4exp-blocks": qwen4(
        [in_rows(f"{NET} {NGRAMS.format(3)} {MOE}"), in_rows(f"{GATED} {MOE}")],
        in_rows(f"token_embd output per_layer_token_embd=1024,64 {HEAD}"),
        ids=LONG_IDS[:199],  # of which the last three are no whole block
        attention__indexer__top_k=16, attention__compress_ratios=[0, 4], **ngrams(0, 2, 1, [1021], eos=0, taps=3),
    ),
    "qwen4exp-plain": qwen4(
        [f"{GATED} {MOE}", f"{NET} {MOE}"], f"token_embd {HEAD}", full_attention_interval=None,
        attention__recurrent_layers=[False, True], attention__indexer__top_k=512, attention__compress_ratios=[4, 0],
        expert_feed_forward_length=None, feed_forward_length=192,
    ),
}  # fmt: skip
