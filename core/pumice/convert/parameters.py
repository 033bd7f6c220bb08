"""Hyperparameters that most families have: from the names in ``config.json`` to GGUF's keys."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

from pumice.convert.folder import HFConfig
from pumice.errors import ConvertError

Names = str | tuple[str, ...]  # in config.json, of one value

INTEGERS = {
    "context_length": (
        "max_position_embeddings", "n_ctx", "n_positions", "max_length", "max_sequence_length", "model_max_length",
    ),
    "embedding_length": ("hidden_size", "n_embd", "dim"),
    "feed_forward_length": (
        "prefix_dense_intermediate_size", "dense_intermediate_size", "intermediate_size", "n_inner", "hidden_dim",
    ),
    "attention.head_count": ("num_attention_heads", "n_head", "n_heads"),
    "attention.head_count_kv": ("num_key_value_heads", "n_kv_heads"),
    "expert_count": ("num_local_experts", "num_experts", "n_routed_experts"),
    "expert_used_count": ("num_experts_per_tok", "num_experts_per_token", "top_k_experts"),
    "expert_group_count": ("n_group",),
    "expert_group_used_count": ("topk_group",),
    "attention.key_length": ("head_dim",),
    "attention.value_length": ("head_dim",),
}  # fmt: skip

NUMBERS = {
    "attention.layer_norm_rms_epsilon": ("rms_norm_eps", "norm_eps"),
    "attention.layer_norm_epsilon": ("layer_norm_eps", "layer_norm_epsilon", "norm_epsilon"),
}

N_LAYER = ("n_layers", "num_hidden_layers", "n_layer", "num_layers")
GATING = ("score_function", "scoring_func", "score_func", "moe_router_activation", "moe_router_activation_func",
          "expert_selection_fn")  # fmt: skip
SOFTMAX, SIGMOID, SQRT_SOFTPLUS = 1, 2, 4  # expert_gating_func
GATING_FUNCTIONS = {"softmax": SOFTMAX, "sigmoid": SIGMOID, "sqrtsoftplus": SQRT_SOFTPLUS}
N_ROPE_SECTIONS = 4


def parameters(config: HFConfig) -> dict[str, Any]:
    """What ``config`` says of what most families have, by GGUF key without the architecture's prefix."""
    found: dict[str, Any] = {}
    for key, names in INTEGERS.items():
        said = next((name for name in names if name in config), None)
        if said is not None and config[said] is not None:
            found[key] = config.counts(said)
    for key, names in NUMBERS.items():
        if config.first(*names) is not None:
            found[key] = number(config, *names)
    if config.get("is_causal") is False:
        found["attention.causal"] = False
    gating = config.first(*GATING)
    if gating is not None:
        if gating not in GATING_FUNCTIONS:
            raise ConvertError(f"{config.path}: experts are chosen by {gating!r}, which is not known")
        found["expert_gating_func"] = GATING_FUNCTIONS[gating]
    return found | rope_parameters(config)


def rope_parameters(config: HFConfig) -> dict[str, Any]:
    """Of rotary positions: base frequencies, scaling, M-RoPE's sections."""
    rope, whole = config.rope, config.whole_rope
    found: dict[str, Any] = {}
    local = rope.get("sliding_attention")
    for key, part in (("rope.freq_base", whole), ("rope.freq_base_swa", local if isinstance(local, dict) else {})):
        if part.get("rope_theta") is not None:
            found[key] = _checked(config, "rope_theta", part["rope_theta"])
    sections = rope.get("mrope_section")
    if isinstance(sections, list):
        found["rope.dimension_sections"] = [*sections, 0, 0, 0, 0][:N_ROPE_SECTIONS]
    return found | _scaling(config, whole)


def _scaling(config: HFConfig, rope: dict[str, Any]) -> dict[str, Any]:
    kind, factor = rope.get("rope_type"), rope.get("factor")
    if kind in ("su", "longrope"):
        return {"rope.scaling.type": "longrope"}
    if kind not in ("linear", "yarn") or factor is None:
        return {}
    found = {"rope.scaling.type": kind, "rope.scaling.factor": _checked(config, "factor", factor)}
    if kind == "yarn":
        if "original_max_position_embeddings" not in rope:
            raise ConvertError(f"{config.path}: yarn needs 'original_max_position_embeddings'")
        found["rope.scaling.original_context_length"] = int(rope["original_max_position_embeddings"])
        for key, names in {
            "yarn_ext_factor": ("extrapolation_factor",),
            "yarn_attn_factor": ("attention_factor", "attn_factor"),
            "yarn_beta_fast": ("beta_fast",),
            "yarn_beta_slow": ("beta_slow",),
        }.items():
            name = next((name for name in names if rope.get(name) is not None), None)
            if name is not None:
                found[f"rope.scaling.{key}"] = _checked(config, name, rope[name])
    return found


def number(config: HFConfig, *names: str) -> float:
    """A number. Raises ConvertError."""
    return _checked(config, names[0], config.first(*names))


def _checked(config: HFConfig, name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ConvertError(f"{config.path}: {name!r} is {value!r}, expected a number")
    return float(value)


def sliding_layers(config: HFConfig) -> list[bool]:
    """Whether each layer has a window; empty if ``layer_types`` does not say."""
    types = config.first("layer_types")
    return [each == "sliding_attention" for each in types] if isinstance(types, list) else []


def leading_dense_layers(config: HFConfig) -> int | None:
    """How many layers are before the first one with experts; None if ``mlp_layer_types`` does not say."""
    types = config.first("mlp_layer_types")
    return len(list(takewhile(lambda each: each == "dense", types))) if isinstance(types, list) else None
