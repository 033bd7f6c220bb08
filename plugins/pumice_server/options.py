"""Fields of a request become options of ``pumice.Model``: sampling by llama-server's and OpenAI's names, and limits."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Mapping
from typing import Any

from starlette.requests import Request

from pumice_server import limits
from pumice_server.adapters import read_scales
from pumice_server.body import Body
from pumice_server.chain import read_samplers
from pumice_server.errors import bad_request
from pumice_server.service import FORMS, Service

Tokenize = Callable[[str], list[int]]

SAMPLING = (
    "temperature",
    "dynatemp_range",
    "dynatemp_exponent",
    "top_k",
    "top_p",
    "min_p",
    "top_n_sigma",
    "typical_p",
    "xtc_probability",
    "xtc_threshold",
    "min_keep",
    "repeat_penalty",
    "repeat_last_n",
    "presence_penalty",
    "frequency_penalty",
    "dry_multiplier",
    "dry_base",
    "dry_allowed_length",
    "dry_penalty_last_n",
    "dry_sequence_breakers",
    "mirostat",
    "mirostat_tau",
    "mirostat_eta",
    "seed",
    "rng",
    "ignore_eos",
)
"""Parameters of the sampler chain that have the same name here as there."""

REFUSED = {
    "grammar_lazy": "tools are described by `tools`, and their calls are kept to by themselves",
    "grammar_triggers": "tools are described by `tools`, and their calls are kept to by themselves",
    "prompt_logprobs": "/v1/completions tells them",
    "image_data": "models see no images yet",
    "min_tokens": "`ignore_eos` and `logit_bias` keep a model from ending",
}
"""Fields that would change the answer, and that are not served: an error is better than a wrong answer."""

VLLM_FORMS = {"json": "json_schema", "grammar": "grammar", "regex": "regex", "choice": "choices"}
"""What vLLM calls these: in ``structured_outputs``, and behind ``guided_`` among the fields."""

_LAST_N = ("repeat_last_n", "dry_penalty_last_n")  # -1: as many tokens as the context


def generation_options(body: Body, service: Service) -> dict[str, Any]:
    """``max_tokens``, ``stop``, sampling, a grammar, adapters. Raises HTTPException or RequestError for wrong ones."""
    for name, reason in REFUSED.items():
        if body.fields.get(name):
            raise bad_request(f"{name} is not supported: {reason}")
    if body.number("adaptive_target", -1) >= 0:
        raise bad_request("adaptive_target is not supported: adaptive-p is not among the samplers")
    if body.fields.get("dry_sequence_breakers") == []:
        raise bad_request("dry_sequence_breakers must be a list of one text or more")
    body = _with_names_of_vllm(body)
    sampling = {name: body.fields[name] for name in SAMPLING if name in body.fields}
    form = {name: body.fields[name] for name in FORMS if body.fields.get(name, "") != ""}
    sampling |= {name: service.model.n_ctx for name in _LAST_N if sampling.get(name) == -1}
    if "temperature" in sampling:
        sampling["temperature"] = max(0, body.number("temperature", 0))  # llama-server's -1 is 0, too
    order = body.first("samplers")
    if order is not None:
        try:
            form["samplers"] = read_samplers(order)
        except ValueError as error:
            raise bad_request(f"samplers: {error}") from None
    bias = body.first("logit_bias")
    if bias:
        sampling["logit_bias"] = _logit_bias(bias, service.model.tokenize)
    options: dict[str, Any] = {**sampling, **form, "stop": _stop(body) or list(service.stop)}
    milliseconds = body.integer("t_max_predict_ms", 0)
    if milliseconds > 0:
        options["newline_timeout"] = milliseconds / 1000
    if priority := body.integer("priority", 0):
        options["priority"] = -priority  # as vLLM has it: the lowest comes first
    if "stop_token_ids" in body.fields:
        options["stop_tokens"] = body.get("stop_token_ids", list, [])
    if body.first("lora") not in (None, []):
        options["adapters"] = service.adapters | read_scales(body.fields["lora"], list(service.scales), "lora")
    max_tokens = body.first("n_predict", "max_completion_tokens", "max_tokens")
    options["max_tokens"] = None if max_tokens == -1 else max_tokens
    return options


def cache_salt(request: Request, body: Body) -> str:
    """Requests with an equal one share cached prompts: those of a client, and with ``cache_prompt`` false none."""
    shares: bool = body.get("cache_prompt", bool, True)
    return request.state.cache_salt if shares else secrets.token_hex(16)


def _with_names_of_vllm(body: Body) -> Body:
    """The fields, with ours for those that vLLM has for the same."""
    fields = dict(body.fields)
    wanted = body.get("structured_outputs", dict, {})
    named = {ours: wanted.get(theirs, fields.get(f"guided_{theirs}")) for theirs, ours in VLLM_FORMS.items()}
    named["repeat_penalty"] = fields.get("repetition_penalty")
    return Body({**{name: value for name, value in named.items() if value is not None}, **fields})


def _stop(body: Body) -> list[str]:
    stop = body.first("stop")
    stops = [stop] if isinstance(stop, str) else stop or []
    return [text for text in stops if text]


def _logit_bias(given: Any, tokenize: Tokenize) -> dict[int, float]:
    """``{"id or text": number}`` or ``[[id or text, number or false]]``; a text stands for each of its tokens."""
    pairs = given.items() if isinstance(given, Mapping) else given
    biases: dict[int, float] = {}
    for pair in pairs:
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            raise bad_request("logit_bias: expected pairs of a token and a number")
        key, value = pair
        number = -math.inf if value is False else value
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            raise bad_request(f"logit_bias: expected a number or false for {key!r:.60}")
        if value is not False and abs(number) > limits.MAX_BIAS:
            raise bad_request(f"logit_bias: {number:g} for {key!r:.60} is not within {limits.MAX_BIAS:g}")
        biases |= dict.fromkeys(_tokens(key, tokenize), float(number))
    return biases


def _tokens(key: Any, tokenize: Tokenize) -> list[int]:
    if isinstance(key, int) and not isinstance(key, bool):
        return [key]
    if not isinstance(key, str) or len(key) > limits.MAX_BIAS_LENGTH:
        raise bad_request(f"logit_bias: a token is an id or a text of at most {limits.MAX_BIAS_LENGTH} characters")
    return [int(key)] if key.isascii() and key.isdigit() and len(key) < 10 else tokenize(key)
