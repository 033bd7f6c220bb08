"""One layer of llama for each way to scale rotary positions: what one metadata key does."""

from typing import Any

from tiny_models import ENDS, LLAMA, YARN, TinyModel, tiny
from tiny_zoo.mla import deepseek2


def llama(architecture: str = "llama", ends: str = ENDS, **keys: Any) -> TinyModel:
    return tiny(architecture, LLAMA, ends, n_layer=1, **keys)


def longrope(original_context: int) -> TinyModel:
    return llama(
        ends=f"{ENDS} rope_factors_long rope_factors_short",
        rope__scaling__type="longrope",
        rope__scaling__original_context_length=original_context,
        rope__scaling__attn_factor=1.19,
    )


MODELS = {
    "rope-plain": llama(), "rope-base": llama(rope__freq_base=500.0),
    "rope-linear": llama(rope__scaling__type="linear", rope__scaling__factor=4.0),
    "rope-linear-old-key": llama(rope__scale_linear=3.0),
    "rope-none": llama(rope__scaling__type="none", rope__scaling__factor=4.0), "rope-yarn": llama(**YARN),
    "rope-yarn-attn-factor": llama(**YARN, rope__scaling__attn_factor=1.3),
    "rope-yarn-betas": llama(
        "mistral3", **YARN | {"rope__scaling__original_context_length": 128}, rope__scaling__yarn_beta_fast=2.0,
        rope__scaling__yarn_beta_slow=0.25,
    ),
    "rope-yarn-mscale": llama("mistral3", **YARN, rope__scaling__yarn_log_multiplier=0.5),
    "rope-yarn-mscale-deepseek2": deepseek2(3, **YARN, rope__scaling__yarn_log_multiplier=0.0707),
    "rope-longrope-short": longrope(256), "rope-longrope-long": longrope(64),
    "rope-llama3": llama(ends=f"{ENDS} rope_freqs"),
    "rope-yarn-temperature": llama(
        "mistral3", **YARN | {"rope__scaling__original_context_length": 8}, attention__temperature_scale=0.5,
    ),
}  # fmt: skip
