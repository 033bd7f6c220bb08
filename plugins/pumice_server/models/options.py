"""Turn the fields of a request into options of ``pumice.Model``: sampling, the format of the text, limits."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from starlette.requests import Request

from pumice.cli.llama_samplers import read_samplers
from pumice.options import OUTPUT
from pumice_server.errors import bad_request
from pumice_server.http.bodies import (
    SAMPLING,
    Caching,
    ChatPromptBody,
    Generation,
    Scale,
    StructuredOutputs,
    TemplateBody,
    Trigger,
)
from pumice_server.models.service import Service

Tokenize = Callable[[str], list[int]]

_VLLM_NAMES = {"json_schema": "json", "grammar": "grammar", "regex": "regex", "choices": "choice"}
"""vLLM's names for the format of a text: in ``structured_outputs``, and after ``guided_``."""

_LAST_N = ("repeat_last_n", "dry_penalty_last_n")  # -1: as many tokens as the context


def generation_options(body: Generation, service: Service) -> dict[str, Any]:
    """Return the options of a generation beside its prompt. Raises HTTPException or RequestError."""
    body.refuse_unsupported()
    options = {**sampling_options(body, service), **_form(body)}
    options["stop"] = [text for text in body.stop_strings() if text] or list(service.stop)
    if body.samplers is not None:
        try:
            options["samplers"] = read_samplers(body.samplers)
        except ValueError as error:
            raise bad_request(f"samplers: {error}") from None
    if body.t_max_predict_ms > 0:
        options["newline_timeout"] = body.t_max_predict_ms / 1000
    if body.min_tokens:
        options["min_tokens"] = body.min_tokens
    if body.speculate is not None:
        options["speculate"] = body.speculate
    if (n_draft := body.draft_limit()) is not None:
        options["n_draft"] = n_draft
    if body.priority:
        options["priority"] = -body.priority  # vLLM runs the lowest number first
    if body.stop_token_ids is not None:
        options["stop_tokens"] = body.stop_token_ids
    if body.lora is not None:
        options["adapters"] = service.adapters | scales_by_name(body.lora, list(service.scales), "lora")
    limit = body.token_limit()
    return {**options, "max_tokens": None if limit == -1 else limit}


def sampling_options(body: Generation, service: Service) -> dict[str, Any]:
    """Return the parameters of the sampler chain that the request has."""
    sampling = {name: value for name in SAMPLING if (value := getattr(body, name)) is not None}
    if body.repetition_penalty is not None:
        sampling.setdefault("repeat_penalty", body.repetition_penalty)
    sampling |= {name: service.model.n_ctx for name in _LAST_N if sampling.get(name) == -1}
    if body.temperature is not None:
        sampling["temperature"] = max(0, body.temperature)  # llama-server reads -1 as 0
    if body.logit_bias:
        sampling["logit_bias"] = _logit_bias(body.logit_bias, service.model.tokenizer.tokenize)
    return sampling


def _form(body: Generation) -> dict[str, Any]:
    """Return the format that the text must have; our own names take precedence over vLLM's."""
    by_vllm = body.structured_outputs or StructuredOutputs()
    form = {}
    for name in OUTPUT.keys() - {"grammar_triggers"}:
        theirs = _VLLM_NAMES.get(name)
        others = (getattr(by_vllm, theirs), getattr(body, f"guided_{theirs}")) if theirs else ()
        value = next((value for value in (getattr(body, name), *others) if value is not None), "")
        if value != "":
            form[name] = value
    if body.grammar_lazy and form.keys() - {"json_whitespace"}:
        form["grammar_triggers"] = _triggers(body.grammar_triggers or [])
    return form


def _triggers(triggers: Sequence[str | Trigger]) -> list[str]:
    """Return the texts that begin a grammar. Raises HTTPException."""
    if any(isinstance(trigger, Trigger) and trigger.type > 1 for trigger in triggers):
        raise bad_request("grammar_triggers: patterns are not supported; give the texts that they stand for (type 1)")
    return [trigger.value if isinstance(trigger, Trigger) else trigger for trigger in triggers]


def caching_options(request: Request, *bodies: Caching) -> dict[str, Any]:
    """Return the salt of cached prompts, and the slot that keeps the tokens (``Service.complete``).

    Clients have different salts, each of them may have several, and a request without ``cache_prompt`` has its own.
    Ollama's bodies may have the fields in two places.
    """
    reuses = all(body.cache_prompt for body in bodies)
    salts = [request.state.cache_salt if reuses else secrets.token_hex(16), *(body.cache_salt for body in bodies)]
    slot = max(body.id_slot for body in bodies)
    return {"cache_salt": "/".join(filter(None, salts)), "slot": (request.state.client, slot)}


def scales_by_name(adapters: Sequence[Scale], names: Sequence[str], field: str = "body") -> dict[str, float]:
    """Return the scale of each adapter, 0 for those that ``adapters`` omits. Raises HTTPException."""
    if adapters and not names:
        raise bad_request(f"{field}: this model has no LoRA adapters; --lora names some when the server is started")
    scales = dict.fromkeys(names, 0.0)
    for i, adapter in enumerate(adapters):
        if adapter.id >= len(names):
            advice = "GET /lora-adapters lists those of this model"
            raise bad_request(f"{field}[{i}].id: no LoRA adapter has the id {adapter.id}; {advice}")
        scales[names[adapter.id]] = adapter.scale
    return scales


def _logit_bias(
    bias: Mapping[str, bool | float] | Sequence[tuple[int | str, bool | float]], tokenize: Tokenize
) -> dict[int, float]:
    """Return the bias of each token; a text stands for each of its tokens, and false for a ban."""
    biases: dict[int, float] = {}
    for key, value in bias.items() if isinstance(bias, Mapping) else bias:
        if value is True:
            raise bad_request(f"logit_bias: expected a number or false for {key!r:.60}")
        biases |= dict.fromkeys(_tokens(key, tokenize), -math.inf if value is False else float(value))
    return biases


def _tokens(key: int | str, tokenize: Tokenize) -> list[int]:
    if isinstance(key, int):
        return [key]
    return [int(key)] if key.isascii() and key.isdigit() and len(key) < 10 else tokenize(key)


PROMPT_FIELDS = ("tools", "tool_choice", "reasoning_effort", "continue_final_message", "add_generation_prompt")


async def prompt_of(body: ChatPromptBody, service: Service) -> str:
    """Return the prompt that the chat template makes of a request."""
    return await service.apply_template(body.messages, chat_prompt_options(body))


def chat_prompt_options(body: ChatPromptBody) -> dict[str, Any]:
    """Return the options that the prompt depends on besides messages."""
    return present(body, PROMPT_FIELDS) | template_options(body)


def template_options(body: TemplateBody) -> dict[str, Any]:
    """Return the variables of the template, and whether and how long the model reasons."""
    variables = body.chat_template_kwargs or {}
    budgets = (body.reasoning_budget_tokens, body.thinking_budget_tokens)
    budget = next((budget for budget in budgets if budget is not None), None)
    return {
        "template_variables": {name: value for name, value in variables.items() if name != "enable_thinking"},
        "reasoning": variables.get("enable_thinking", body.enable_thinking),
        "reasoning_budget": None if budget == -1 else budget,
    }


def present(body: ChatPromptBody, names: Iterable[str]) -> dict[str, Any]:
    return {name: value for name in names if (value := getattr(body, name)) is not None}
