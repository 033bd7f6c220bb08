"""What an answer was generated with, by llama-server's names: given, configured, or the samplers' own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pumice_server.adapters import listed
from pumice_server.chain import named
from pumice_server.service import Service


def generation_settings(service: Service, options: Mapping[str, Any]) -> dict[str, Any]:
    """``options`` as ``Model.generate`` has them; none of them: the settings of a request that gives nothing."""
    model, rest = service.model, dict(options)
    scales = rest.pop("adapters", service.adapters)
    max_tokens = rest.pop("max_tokens", None)
    biases = rest.pop("logit_bias", {})
    told = {
        "n_ctx": model.n_ctx,
        "n_predict": -1 if max_tokens is None else max_tokens,
        "max_tokens": -1 if max_tokens is None else max_tokens,
        "samplers": named(rest.pop("samplers", model.config.samplers)),
        "n_probs": rest.pop("logprobs", 0),
        "post_sampling_probs": rest.pop("logprobs_sampled", False),
        "logit_bias": [{"token": key, "bias": by if math.isfinite(by) else None} for key, by in biases.items()],
        "lora": listed({name: scales[name] for name in service.scales}),
        "stop": [],
        "grammar": "",
    }
    return {**model.sampling, **told, **rest}
