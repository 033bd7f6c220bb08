"""Hyperparameters that most families share: names in ``config.json``, and GGUF's keys."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import takewhile
from typing import Any

from pumice.convert.folder import HFConfig
from pumice.errors import ConvertError

Rope = dict[str, Any]  # settings of RoPE
KeyNames = str | tuple[str, ...]  # alternative names in config.json of one value

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
    "expert_feed_forward_length": ("moe_intermediate_size",),
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
GATING_FUNCTIONS = {"softmax": SOFTMAX, "sigmoid": SIGMOID, "noaux_tc": SIGMOID, "sqrtsoftplus": SQRT_SOFTPLUS}
N_ROPE_SECTIONS = 4
UNSCALED = (None, "default", "mrope")  # types of RoPE without scaling
SCALED_LAYERS = ("full_attention", "compress")  # kinds of layers whose RoPE may be scaled


def parameters(config: HFConfig) -> dict[str, Any]:
    """Return the common hyperparameters in ``config``, by GGUF key without the architecture's prefix."""
    values: dict[str, Any] = {}
    for key, names in INTEGERS.items():
        name = next(iter(config.stated(*names)), None)
        if name is not None and config[name] is not None:
            values[key] = config.counts(name)
    for key, names in NUMBERS.items():
        if config.first(*names) is not None:
            values[key] = number(config, *names)
    if config.get("is_causal") is False:
        values["attention.causal"] = False
    gating = config.first(*GATING)
    if gating is not None:
        if gating not in GATING_FUNCTIONS:
            raise ConvertError(
                f"{config.path}: unknown expert gating {gating!r}; only {', '.join(GATING_FUNCTIONS)} are supported"
            )
        values["expert_gating_func"] = GATING_FUNCTIONS[gating]
    return values | rope_parameters(config)


def rope_parameters(config: HFConfig) -> dict[str, Any]:
    """Return the hyperparameters of RoPE: base frequencies, scaling, sections of M-RoPE."""
    rope, whole = config.rope, config.whole_rope
    for layers, part in rope.items():
        if isinstance(part, dict) and layers not in SCALED_LAYERS and part.get("rope_type") not in UNSCALED:
            raise config.unsupported(config.rope_key, f"'rope_type' 'default' in {layers!r}")
    values: dict[str, Any] = {}
    local = rope.get("sliding_attention")
    for key, part in (("rope.freq_base", whole), ("rope.freq_base_swa", local if isinstance(local, dict) else {})):
        if part.get("rope_theta") is not None:
            values[key] = _checked(config, "rope_theta", part["rope_theta"])
    sections = rope.get("mrope_section")
    if isinstance(sections, list):
        values["rope.dimension_sections"] = [*sections, 0, 0, 0, 0][:N_ROPE_SECTIONS]
    return values | _scaling(config, whole)


def _scaling(config: HFConfig, rope: Rope) -> dict[str, Any]:
    kind, factor = rope.get("rope_type"), rope.get("factor")
    if kind in ("su", "longrope"):
        magnitude = _magnitude(config, rope, _longrope_magnitude)
        return {"rope.scaling.type": "longrope"} | ({} if magnitude == 1 else {"rope.scaling.attn_factor": magnitude})
    if kind not in ("linear", "yarn") or factor is None:
        return {}
    values = {"rope.scaling.type": kind, "rope.scaling.factor": _checked(config, "factor", factor)}
    if kind == "yarn":
        if "original_max_position_embeddings" not in rope:
            raise ConvertError(f"{config.path}: the RoPE type yarn needs 'original_max_position_embeddings'")
        values["rope.scaling.original_context_length"] = int(rope["original_max_position_embeddings"])
        for key, names in {
            "yarn_ext_factor": ("extrapolation_factor",),
            "yarn_attn_factor": ("attention_factor", "attn_factor"),
            "yarn_beta_fast": ("beta_fast",),
            "yarn_beta_slow": ("beta_slow",),
        }.items():
            name = next((name for name in names if rope.get(name) is not None), None)
            if name is not None:
                values[f"rope.scaling.{key}"] = _checked(config, name, rope[name])
        if config.rope.get("truncate") is False:  # transformers does not read it in settings for kinds of layers
            values["rope.scaling.yarn_truncate"] = False
        own = 1 + 0.1 * math.log(values["rope.scaling.factor"])  # which a file's factor multiplies
        if (magnitude := _magnitude(config, rope, _yarn_magnitude)) != own:
            values["rope.scaling.attn_factor"] = magnitude / own
    return values


def _magnitude(config: HFConfig, rope: Rope, computed: Callable[[HFConfig, Rope], float]) -> float:
    """Return the factor of values that RoPE rotates, ``computed`` unless the checkpoint has it."""
    factor = rope.get("attention_factor")
    return computed(config, rope) if factor is None else _checked(config, "attention_factor", factor)


def _longrope_magnitude(config: HFConfig, rope: Rope) -> float:
    """Return the factor of LongRoPE (Ding et al. 2024, arXiv:2402.13753)."""
    n_ctx = config.first(*INTEGERS["context_length"])
    trained = rope.get("original_max_position_embeddings") or n_ctx
    factor = rope.get("factor") or n_ctx / trained
    return math.sqrt(1 + math.log(factor) / math.log(trained)) if factor > 1 else 1.0


def _yarn_magnitude(config: HFConfig, rope: Rope) -> float:
    """Return the factor of YaRN, as transformers computes it."""
    has_scales = rope.get("mscale") and rope.get("mscale_all_dim")
    scales = [_checked(config, name, rope[name]) for name in ("mscale", "mscale_all_dim")] if has_scales else [1.0, 0.0]
    growth = math.log(max(float(rope["factor"]), 1.0))
    return (1 + 0.1 * scales[0] * growth) / (1 + 0.1 * scales[1] * growth)


def number(config: HFConfig, *names: str) -> float:
    """Return the number under the first present name. Raises ConvertError if it is not a number."""
    return _checked(config, names[0], config.first(*names))


def _checked(config: HFConfig, name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ConvertError(f"{config.path}: {config.named(name)} is {value!r}, expected a number")
    return float(value)


def sliding_layers(config: HFConfig) -> list[bool]:
    """Return True for each layer with a sliding window; empty without ``layer_types``."""
    types = config.first("layer_types")
    return [type == "sliding_attention" for type in types] if isinstance(types, list) else []


def leading_dense_layers(config: HFConfig) -> int | None:
    """Return the number of dense layers before the first one with experts; None without ``mlp_layer_types``."""
    types = config.first("mlp_layer_types")
    return len(list(takewhile(lambda type: type == "dense", types))) if isinstance(types, list) else None
