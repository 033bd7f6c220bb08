"""Return the settings of a generation by llama-server's names, from request, configuration and defaults."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pumice.cli.llama_samplers import named
from pumice_server.models.service import Service


def generation_settings(service: Service, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings for options of ``Model.generate``; without options, those of an empty request."""
    model, rest = service.model, dict(options)
    scales = rest.pop("adapters", service.adapters)
    max_tokens = service.most_tokens(rest.pop("max_tokens", None))
    biases: dict[int, float] = rest.pop("logit_bias", {})
    if rest.get("ignore_eos"):
        biases = {**biases, **dict.fromkeys(sorted(model.tokenizer.eog), -math.inf)}
    rest.pop("slot", None)
    settings = {
        "n_ctx": model.n_ctx,
        "n_predict": -1 if max_tokens is None else max_tokens,
        "max_tokens": -1 if max_tokens is None else max_tokens,
        "samplers": named(rest.pop("samplers", model.config.samplers), {**model.sampling, **rest}),
        "n_probs": rest.pop("logprobs", 0),
        "post_sampling_probs": rest.pop("logprobs_sampled", False),
        "logit_bias": [{"token": key, "bias": by if math.isfinite(by) else None} for key, by in biases.items()],
        "lora": [{"id": i, "scale": scales[name]} for i, name in enumerate(service.scales)],
        "stop": [],
        "grammar": "",
    }
    return {**model.sampling, **settings, **rest}
