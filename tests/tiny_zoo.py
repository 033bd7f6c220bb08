"""The tiny models by name: what each is there to show is in the name and in its arguments."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tiny_models import N_CTX, Maker, TinyModel, llama

SMALL: dict[str, Any] = {"n_embd": 16, "n_head": 2, "n_head_kv": 1, "head_dim": 8, "n_ff": 16}
"""For models of many layers."""


def with_factors(model: TinyModel, *names: str) -> TinyModel:
    n_rot = model.metadata["rope.dimension_count"]
    model.shapes |= {f"{name}.weight": (n_rot // 2,) for name in names}
    return model


def longrope(original_context: int) -> TinyModel:
    model = llama(
        rope__scaling__type="longrope",
        rope__scaling__original_context_length=original_context,
        rope__scaling__attn_factor=1.19,
    )
    return with_factors(model, "rope_factors_long", "rope_factors_short")


def llama_moe() -> TinyModel:
    """With one matrix for queries, keys and values but a bias for each, and scales on experts."""
    m = Maker("llama")

    def layer(blk: str) -> None:
        m.norm(f"{blk}attn_norm")
        m.attention(blk, fused=True)
        for name, n_head in (("q", m.n_head), ("k", m.n_head_kv), ("v", m.n_head_kv)):
            m.shapes[f"{blk}attn_{name}.bias"] = (n_head * m.head_dim,)
        m.norm(f"{blk}ffn_norm")
        m.experts(blk, scale=True)

    return m.model(layer, expert_count=4, expert_used_count=2)


def qwen2() -> TinyModel:
    m = Maker("qwen2")

    def layer(blk: str) -> None:
        m.norm(f"{blk}attn_norm")
        m.attention(blk, qkv_bias=True)
        m.norm(f"{blk}ffn_norm")
        m.feed_forward(blk)

    return m.model(layer, tied=True, rope__freq_base=1e6)


def qwen3(architecture: str = "qwen3", **metadata: Any) -> TinyModel:
    m = Maker(architecture, head_dim=32)

    def layer(blk: str) -> None:
        m.norm(f"{blk}attn_norm")
        m.attention(blk)
        m.qk_norms(blk)
        m.norm(f"{blk}ffn_norm")
        if architecture == "qwen3":
            m.feed_forward(blk)
        else:
            m.experts(blk)

    return m.model(layer, **metadata)


def gemma(architecture: str, n_layer: int = 2, dims: dict[str, Any] | None = None, **metadata: Any) -> TinyModel:
    m = Maker(architecture, n_layer, **(dims or {"head_dim": 32, "n_head_kv": 1}))

    def layer(blk: str) -> None:
        m.norm(f"{blk}attn_norm")
        m.attention(blk)
        m.norm(f"{blk}ffn_norm")
        m.feed_forward(blk)
        if architecture != "gemma":
            m.norm(f"{blk}post_attention_norm")
            m.norm(f"{blk}post_ffw_norm")
        if architecture == "gemma3":
            m.qk_norms(blk)

    return m.model(layer, tied=True, **metadata)


def phi2() -> TinyModel:
    m = Maker("phi2", n_head_kv=4, layer_norm=True, norm_bias=True, bias=True)

    def layer(blk: str) -> None:
        m.norm(f"{blk}attn_norm")
        m.attention(blk, fused=True)
        m.feed_forward(blk, gate=False)

    model = m.model(layer, rope__dimension_count=8)
    model.shapes["output.bias"] = model.shapes["output.weight"][:1]
    return model


def phi3(original_context: int) -> TinyModel:
    m = Maker("phi3")

    def layer(blk: str) -> None:
        m.norm(f"{blk}attn_norm")
        m.attention(blk, fused=True)
        m.norm(f"{blk}ffn_norm")
        m.feed_forward(blk, gate=False)
        m.tensor(f"{blk}ffn_up", 2 * m.n_ff, m.n_embd)

    model = m.model(
        layer,
        rope__scaling__original_context_length=original_context,
        rope__scaling__attn_factor=1.19,
        attention__sliding_window=8,
    )
    return with_factors(model, "rope_factors_long", "rope_factors_short")


def falcon(n_head_kv: int, two_norms: bool) -> TinyModel:
    m = Maker("falcon", n_head_kv=n_head_kv, layer_norm=True, norm_bias=True)

    def layer(blk: str) -> None:
        m.norm(f"{blk}attn_norm")
        if two_norms:
            m.norm(f"{blk}attn_norm_2")
        m.attention(blk, fused=True)
        m.feed_forward(blk, gate=False)

    return m.model(layer, tied=True)


def gpt(architecture: str, n_head_kv: int = 4, fused: bool = True, tied: bool = False, **metadata: Any) -> TinyModel:
    """GPT-2, GPT-NeoX, StarCoder 2: biases everywhere."""
    m = Maker(architecture, n_head_kv=n_head_kv, layer_norm=True, norm_bias=True, bias=True)
    if architecture == "gpt2":
        m.tensor("position_embd", N_CTX, m.n_embd)

    def layer(blk: str) -> None:
        m.norm(f"{blk}attn_norm")
        m.attention(blk, fused=fused)
        m.norm(f"{blk}ffn_norm")
        m.feed_forward(blk, gate=False)

    return m.model(layer, tied=tied, **metadata)


def stablelm(qk_norm: bool) -> TinyModel:
    m = Maker("stablelm", layer_norm=True, norm_bias=True)

    def layer(blk: str) -> None:
        m.norm(f"{blk}attn_norm")
        m.attention(blk, qkv_bias=not qk_norm)
        if qk_norm:
            m.qk_norms(blk, (m.n_head, m.head_dim), (m.n_head_kv, m.head_dim))
        else:
            m.norm(f"{blk}ffn_norm")
        m.feed_forward(blk)

    return m.model(layer, rope__dimension_count=4)


def post_norm(architecture: str, n_layer: int, dims: dict[str, Any], wide_qk_norm: bool, **metadata: Any) -> TinyModel:
    """OLMo 2 and EXAONE 4."""
    m = Maker(architecture, n_layer, **dims)

    def layer(blk: str) -> None:
        m.attention(blk)
        if wide_qk_norm:
            m.qk_norms(blk, (m.n_head * m.head_dim,), (m.n_head_kv * m.head_dim,))
        else:
            m.qk_norms(blk)
        m.norm(f"{blk}post_attention_norm")
        m.feed_forward(blk)
        m.norm(f"{blk}post_ffw_norm")

    return m.model(layer, **metadata)


def granite(architecture: str = "granite", **metadata: Any) -> TinyModel:
    m = Maker(architecture)
    shared = metadata.get("expert_shared_feed_forward_length", 0)

    def layer(blk: str) -> None:
        m.norm(f"{blk}attn_norm")
        m.attention(blk)
        m.norm(f"{blk}ffn_norm")
        if architecture == "granite":
            m.feed_forward(blk)
        else:
            m.experts(blk)
            m.feed_forward(blk, suffix="_shexp", n_ff=shared)

    scales = {"embedding_scale": 3.0, "residual_scale": 0.4, "logit_scale": 2.5, "attention__scale": 0.1}
    return m.model(layer, tied=True, **scales, **metadata)


def command_r(n_layer: int = 2, dims: dict[str, Any] | None = None) -> TinyModel:
    m = Maker("command-r", n_layer, layer_norm=True, **(dims or {}))

    def layer(blk: str) -> None:
        m.norm(f"{blk}attn_norm")
        m.attention(blk)
        m.feed_forward(blk)
        if n_layer >= 64:
            m.qk_norms(blk, (m.n_head, m.head_dim), (m.n_head_kv, m.head_dim))

    return m.model(layer, tied=True, logit_scale=0.25)


def gpt_oss(**metadata: Any) -> TinyModel:
    m = Maker("gpt-oss", n_layer=3, bias=True, head_dim=32)

    def layer(blk: str) -> None:
        m.norm(f"{blk}attn_norm")
        m.attention(blk)
        m.shapes[f"{blk}attn_sinks.weight"] = (m.n_head,)
        m.norm(f"{blk}post_attention_norm")
        m.experts(blk, bias=True)

    return m.model(
        layer,
        expert_count=4,
        expert_used_count=2,
        expert_feed_forward_length=m.n_ff,
        attention__sliding_window=8,
        **metadata,
    )


def deepseek2(
    n_layer: int = 3,
    dims: dict[str, Any] | None = None,
    absorbed: bool = True,
    fused_experts: bool = False,
    q_lora_rank: int = 24,
    n_expert: int = 4,
    **metadata: Any,
) -> TinyModel:
    m = Maker("deepseek2", n_layer, **(dims or {}))
    kv_lora_rank, n_rot = 2 * m.head_dim, m.head_dim // 2
    nope = m.head_dim - n_rot

    def layer(blk: str) -> None:
        m.norm(f"{blk}attn_norm")
        if q_lora_rank:
            m.tensor(f"{blk}attn_q_a", q_lora_rank, m.n_embd)
            m.norm(f"{blk}attn_q_a_norm", q_lora_rank)
        m.tensor(f"{blk}attn_q_b" if q_lora_rank else f"{blk}attn_q", m.n_head * m.head_dim, q_lora_rank or m.n_embd)
        m.tensor(f"{blk}attn_kv_a_mqa", kv_lora_rank + n_rot, m.n_embd)
        m.norm(f"{blk}attn_kv_a_norm", kv_lora_rank)
        if absorbed:
            each_head = (m.n_head,) if m.n_head > 1 else ()  # ggml drops a last dimension of 1
            m.tensor(f"{blk}attn_k_b", *each_head, kv_lora_rank, nope)
            m.tensor(f"{blk}attn_v_b", *each_head, m.head_dim, kv_lora_rank)
        else:
            m.tensor(f"{blk}attn_kv_b", m.n_head * (nope + m.head_dim), kv_lora_rank)
        m.tensor(f"{blk}attn_output", m.n_embd, m.n_head * m.head_dim)
        m.norm(f"{blk}ffn_norm")
        if blk == "blk.0.":
            m.feed_forward(blk)
        else:
            m.experts(blk, n_expert=n_expert)
            if fused_experts:
                del m.shapes[f"{blk}ffn_gate_exps.weight"], m.shapes[f"{blk}ffn_up_exps.weight"]
                m.tensor(f"{blk}ffn_gate_up_exps", n_expert, 2 * m.n_ff, m.n_embd)
            m.feed_forward(blk, suffix="_shexp")
            if metadata.get("expert_gating_func") == 2:
                m.shapes[f"{blk}exp_probs_b.bias"] = (n_expert,)

    mla = {
        "attention__head_count_kv": 1,
        "attention__key_length": kv_lora_rank + n_rot,
        "attention__value_length": kv_lora_rank,
        "attention__key_length_mla": m.head_dim,
        "attention__value_length_mla": m.head_dim,
    }
    if q_lora_rank:
        metadata["attention__q_lora_rank"] = q_lora_rank
    return m.model(
        layer,
        attention__kv_lora_rank=kv_lora_rank,
        **(mla if absorbed else {"attention__head_count_kv": m.n_head}),
        rope__dimension_count=n_rot,
        leading_dense_block_count=1,
        expert_count=n_expert,
        expert_used_count=2,
        expert_shared_count=1,
        expert_feed_forward_length=m.n_ff,
        **metadata,
    )


def mamba(**metadata: Any) -> TinyModel:
    m = Maker("mamba", n_head=0, n_head_kv=0)
    d_inner, d_state, d_conv, rank = 2 * m.n_embd, 8, 4, 3

    def layer(blk: str) -> None:
        m.norm(f"{blk}attn_norm")
        m.tensor(f"{blk}ssm_in", 2 * d_inner, m.n_embd)
        m.tensor(f"{blk}ssm_conv1d", d_inner, d_conv, bias=True)
        m.tensor(f"{blk}ssm_x", rank + 2 * d_state, d_inner)
        m.tensor(f"{blk}ssm_dt", d_inner, rank, bias=True)
        m.shapes[f"{blk}ssm_a"] = (d_inner, d_state)
        m.shapes[f"{blk}ssm_d"] = (d_inner,)
        m.tensor(f"{blk}ssm_out", m.n_embd, d_inner)

    return m.model(
        layer,
        tied=True,
        feed_forward_length=0,
        ssm__inner_size=d_inner,
        ssm__state_size=d_state,
        ssm__conv_kernel=d_conv,
        ssm__time_step_rank=rank,
        **metadata,
    )


YARN: dict[str, Any] = {
    "rope__scaling__type": "yarn",
    "rope__scaling__factor": 8.0,
    "rope__scaling__original_context_length": 32,
}

ROPES: dict[str, Callable[[], TinyModel]] = {
    "rope-plain": llama,
    "rope-base": partial(llama, rope__freq_base=500.0),
    "rope-linear": partial(llama, rope__scaling__type="linear", rope__scaling__factor=4.0),
    "rope-linear-old-key": partial(llama, rope__scale_linear=3.0),
    "rope-none": partial(llama, rope__scaling__type="none", rope__scaling__factor=4.0),
    "rope-yarn": partial(llama, **YARN),
    "rope-yarn-attn-factor": partial(llama, **YARN, rope__scaling__attn_factor=1.3),
    "rope-yarn-betas": partial(
        llama,
        "mistral3",
        **YARN | {"rope__scaling__original_context_length": 128},
        rope__scaling__yarn_beta_fast=2.0,
        rope__scaling__yarn_beta_slow=0.25,
    ),
    "rope-yarn-mscale": partial(llama, "mistral3", **YARN, rope__scaling__yarn_log_multiplier=0.5),
    "rope-yarn-mscale-deepseek2": partial(deepseek2, **YARN, rope__scaling__yarn_log_multiplier=0.0707),
    "rope-longrope-short": partial(longrope, 256),
    "rope-longrope-long": partial(longrope, 64),
    "rope-llama3": lambda: with_factors(llama(), "rope_freqs"),
    "rope-yarn-temperature": partial(
        llama, "mistral3", **YARN | {"rope__scaling__original_context_length": 8}, attention__temperature_scale=0.5
    ),
}

FAMILIES: dict[str, Callable[[], TinyModel]] = {
    "llama-bias": partial(llama, n_layer=2, bias=True),
    "llama-moe": llama_moe,
    "qwen2": qwen2,
    "qwen3": qwen3,
    "qwen3moe": partial(qwen3, "qwen3moe", expert_count=4, expert_used_count=2, expert_feed_forward_length=96),
    "gemma": partial(gemma, "gemma"),
    "gemma2": partial(gemma, "gemma2", attention__sliding_window=8, attn_logit_softcapping=2.0),
    "gemma2-27b": partial(gemma, "gemma2", 46, {**SMALL, "head_dim": 16}, attention__sliding_window=8),
    "gemma3": partial(
        gemma,
        "gemma3",
        7,
        attention__sliding_window=8,
        rope__freq_base=1e6,
        rope__scaling__type="linear",
        rope__scaling__factor=8.0,
    ),
    "phi2": phi2,
    "phi3-short": partial(phi3, 256),
    "phi3-long": partial(phi3, 64),
    "falcon-7b": partial(falcon, 1, False),
    "falcon-40b": partial(falcon, 2, True),
    "gpt2": partial(gpt, "gpt2", tied=True),
    "gptneox-parallel": partial(gpt, "gptneox", use_parallel_residual=True, rope__dimension_count=4),
    "gptneox": partial(gpt, "gptneox", use_parallel_residual=False),
    "stablelm": partial(stablelm, False),
    "stablelm-12b": partial(stablelm, True),
    "starcoder2": partial(gpt, "starcoder2", n_head_kv=2, fused=False, tied=True),
    "olmo2": partial(post_norm, "olmo2", 2, {}, True),
    "olmo3": partial(post_norm, "olmo2", 5, {}, True, attention__sliding_window=8, **YARN),
    "granite": granite,
    "granite-no-rope": partial(granite, rope__scaling__finetuned=False),
    "granitemoe": partial(
        granite, "granitemoe", expert_count=4, expert_used_count=2, expert_shared_feed_forward_length=48
    ),
    "command-r": command_r,
    "command-r-plus": partial(command_r, 64, SMALL),
    "smollm3": partial(llama, "smollm3", 4),
    "exaone4": lambda: with_factors(post_norm("exaone4", 2, {}, False), "rope_freqs"),
    "exaone4-32b": partial(post_norm, "exaone4", 64, SMALL, False, attention__sliding_window=8),
    "gpt-oss": gpt_oss,
    "gpt-oss-yarn": partial(gpt_oss, **YARN, rope__freq_base=150000.0),
    "deepseek2": deepseek2,
    "deepseek2-lite": partial(deepseek2, 27, SMALL, absorbed=False, q_lora_rank=0),
    "deepseek2-one-head": partial(deepseek2, 2, {"n_head": 1, "n_head_kv": 1, "head_dim": 64}),
    "deepseek2-v3": partial(
        deepseek2,
        n_expert=12,
        expert_group_count=4,
        expert_group_used_count=2,
        expert_gating_func=2,
        expert_weights_norm=True,
        expert_weights_scale=2.5,
        fused_experts=True,
    ),
    "deepseek2-drafts": partial(deepseek2, 2, block_count=3, nextn_predict_layers=1),
    "deepseek2-temperature": partial(deepseek2, 2, attention__temperature_scale=0.5, attention__temperature_length=8),
    "mamba": mamba,
    "falcon-mamba": partial(mamba, ssm__dt_b_c_rms=True),
}

ZOO = ROPES | FAMILIES
DEEP = ("gemma2-27b", "command-r-plus", "exaone4-32b", "deepseek2-lite")
"""Models of as many layers as tell an architecture which published size it is looking at."""
