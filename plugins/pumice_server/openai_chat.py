"""OpenAI's chat completions, with the further fields of llama-server."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

import pumice
from pumice_server.answers import DONE, Streaming, event, make_answer, unless_gone
from pumice_server.body import Body
from pumice_server.errors import bad_request
from pumice_server.figures import chat_logprob, finish_reason, size_of, timings, usage
from pumice_server.generation_settings import generation_settings
from pumice_server.limits import MAX_LOGPROBS, MAX_MESSAGES
from pumice_server.models import service_of
from pumice_server.options import SAMPLING, cache_salt, generation_options
from pumice_server.report import Reading, Report
from pumice_server.service import WORK, Service
from pumice_server.work import aside

REASONING_FORMATS = {"auto": True, "deepseek": True, "none": False}
"""Whether each tells reasoning apart from the content; "deepseek-legacy" is neither, and has it twice."""

_PROMPT_FIELDS = ("tools", "tool_choice", "reasoning_effort", "continue_final_message", "add_generation_prompt")
_CHAT_FIELDS = (*_PROMPT_FIELDS, "response_format", "reasoning_budget_message", "parallel_tool_calls")
"""Fields that are options of ``Model.chat`` as they are."""


async def chat_completions(request: Request) -> Response:
    body = await Body.read(request)
    service = await service_of(request, body.first("model"))
    stream = body.get("stream", bool, False)
    options = await body.aside(chat_options, body, service, cache_salt(request, body))
    report = Report(body, stream)
    streams = await service.chat(read_messages(body, service.compat), body.integer("n", 1), options, report.progress)
    head = _Head(service, options if body.get("verbose", bool, service.verbose) else None)
    if stream:
        return Streaming(_events(head, streams, report), partial(service.end, streams))
    completions = await unless_gone(request, service.gather(streams))
    n_told = len(streams[0].prompt_tokens) if head.is_verbose else 0
    return await make_answer(lambda: _answer(head, completions, streams), size_of(completions, n_told))


async def answer_chat(request: Request, service: Service, body: Body) -> tuple[Callable[[], Mapping[str, Any]], int]:
    """What makes the answer to a chat of which a request holds several, and about how many bytes it has."""
    options = await body.aside(chat_options, body, service, cache_salt(request, body))
    streams = await service.chat(read_messages(body, service.compat), body.integer("n", 1), options)
    completions = await service.gather(streams)
    return partial(_answer, _Head(service), completions, streams), size_of(completions)


def read_messages(body: Body, compat: bool = False) -> list[Any]:
    """The messages. ``compat``: as llama-server, which takes no two answers at the end. Raises HTTPException."""
    messages = body.get("messages", list, [])
    if not messages:
        raise bad_request(f"messages must be a list of 1 to {MAX_MESSAGES} messages")
    if compat and [each.get("role") for each in messages[-2:] if isinstance(each, dict)] == ["assistant"] * 2:
        raise bad_request("messages: the last two are the assistant's, and only one can be continued")
    return messages


def chat_options(body: Body, service: Service, salt: str) -> dict[str, Any]:
    """What ``Model.chat`` takes, as a chat request's fields say it."""
    options = generation_options(body, service)
    options |= {name: body.fields[name] for name in _CHAT_FIELDS if name in body.fields}
    options |= template_options(body)
    if body.get("add_generation_prompt", bool, False) and body.get("continue_final_message", bool, False):
        raise bad_request("add_generation_prompt and continue_final_message exclude each other")
    if "reasoning_format" in body.fields:
        options["separate_reasoning"] = separates(body.get("reasoning_format", str, ""))
    n_top = body.integer("top_logprobs", 0)
    if body.get("logprobs", bool, False):
        options["logprobs"] = n_top
    elif n_probs := body.integer("n_probs", 0, most=MAX_LOGPROBS):  # llama-server's, for both
        options["logprobs"] = n_probs
    elif "top_logprobs" in body.fields:
        raise bad_request("top_logprobs needs logprobs to be true")
    return {**options, "cache_salt": salt}


def separates(reasoning_format: str) -> bool:
    """Whether reasoning is told apart from the content, by llama-server's names. Raises HTTPException."""
    if reasoning_format not in REASONING_FORMATS:
        known = ", ".join(REASONING_FORMATS)
        raise bad_request(f"reasoning_format must be one of {known}, not {reasoning_format!r:.60}")
    return REASONING_FORMATS[reasoning_format]


async def prompt_of(body: Body, service: Service) -> str:
    """The prompt that the template makes of a chat request."""
    options = {name: body.fields[name] for name in _PROMPT_FIELDS if name in body.fields} | template_options(body)
    return await service.apply_template(read_messages(body), options)


def template_options(body: Body) -> dict[str, Any]:
    """Variables of the template, and reasoning: on, off, with a budget."""
    body.get("tools", list, [])
    variables = body.get("chat_template_kwargs", dict, {})
    reasoning = variables.get("enable_thinking", body.first("enable_thinking"))
    budget = body.first("reasoning_budget_tokens", "thinking_budget_tokens")
    return {
        "template_variables": {name: value for name, value in variables.items() if name != "enable_thinking"},
        "reasoning": reasoning,
        "reasoning_budget": None if budget == -1 else budget,
    }


class _Head:
    """What every part of an answer carries; with ``options`` its end also tells how it was made."""

    def __init__(self, service: Service, options: Mapping[str, Any] | None = None) -> None:
        self._service, self._options = service, options
        self._spell = service.token_bytes
        self._id = f"chatcmpl-{secrets.token_urlsafe(18)}"
        self._model = service.name
        self._fingerprint = service.fingerprint
        self._created = int(time.time())

    def part(self, kind: str, choices: Sequence[Any], **others: Any) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": kind,
            "created": self._created,
            "model": self._model,
            "system_fingerprint": self._fingerprint,
            "choices": choices,
            **others,
        }

    @property
    def is_verbose(self) -> bool:
        return self._options is not None

    def verbose(self, stream: pumice.AsyncChatStream) -> dict[str, Any]:
        """llama-server's ``__verbose``: the prompt as the model read it, and the settings; nothing if not wanted."""
        if self._options is None:
            return {}
        sampling = {name: self._options[name] for name in (*SAMPLING, "max_tokens") if name in self._options}
        told = {
            "prompt": self._service.spelt(stream.prompt_tokens),
            "generation_settings": generation_settings(self._service, sampling),
            "tokens_evaluated": len(stream.prompt_tokens),
            "tokens_predicted": stream.timings.generated_tokens,
        }
        return {"__verbose": told}

    def logprobs(self, found: Sequence[Any] | None) -> dict[str, Any] | None:
        return {"content": [chat_logprob(each.token, each, self._spell) for each in found]} if found else None


def _answer(
    head: _Head, completions: Sequence[pumice.ChatCompletion], streams: Sequence[pumice.AsyncChatStream]
) -> dict[str, Any]:
    choices = [
        {
            "index": index,
            "message": completion.message.to_dict(),
            "finish_reason": finish_reason(completion.finish_reason),
            "logprobs": head.logprobs(completion.logprobs),
        }
        for index, completion in enumerate(completions)
    ]
    total = total_usage([completion.usage for completion in completions])
    others = {"timings": timings(streams[0].timings), **head.verbose(streams[0])}
    return head.part("chat.completion", choices, usage=total, **others)


async def _events(head: _Head, streams: Sequence[pumice.AsyncChatStream], report: Report) -> AsyncIterator[bytes]:
    def chunk(
        index: int,
        delta: Mapping[str, Any],
        reason: str | None = None,
        logprobs: Any = None,
        others: Mapping[str, Any] | None = None,
    ) -> bytes:
        choice = {"index": index, "delta": delta, "finish_reason": reason, "logprobs": logprobs}
        told = others or report.fields(streams[index].timings, ended=reason is not None)
        return event(head.part("chat.completion.chunk", [choice], **told))

    usages: list[pumice.Usage] = []
    n_calls = [0] * len(streams)
    for index in range(len(streams)):
        choice = {"index": index, "delta": {"role": "assistant", "content": None}, "finish_reason": None}
        yield event(head.part("chat.completion.chunk", [{**choice, "logprobs": None}]))

    def content(index: int, text: str) -> bytes:
        return chunk(index, {"content": text})

    plain = [report.frame(partial(content, index)) for index in range(len(streams))]
    async for index, deltas in report.merge(streams):
        if isinstance(deltas, Reading):
            yield chunk(index, {}, others=deltas.fields)  # the role was told, and some clients join what deltas say
            continue
        for delta in deltas:
            if delta.is_text:
                yield plain[index](delta.content)
                continue
            parts = _delta(delta, n_calls[index])
            n_calls[index] += len(delta.tool_calls)
            logprobs = head.logprobs(delta.logprobs)
            if parts or logprobs:
                yield chunk(index, parts, logprobs=logprobs)
            if delta.finish_reason and delta.usage:
                usages.append(delta.usage)
                made = await aside(head.verbose, streams[index], size=WORK * len(streams[index].prompt_tokens))
                told = {**report.fields(streams[index].timings, ended=True), **made}
                yield chunk(index, {}, finish_reason(delta.finish_reason), others=told)
    if report.usage:
        end = {"usage": total_usage(usages), "timings": timings(streams[0].timings)}
        yield event(head.part("chat.completion.chunk", [], **end))
    yield DONE


def _delta(delta: pumice.ChatDelta, n_calls: int) -> dict[str, Any]:
    """A part of an answer; ``n_calls`` tool calls came before it."""
    parts: dict[str, Any] = {}
    if delta.reasoning:
        parts["reasoning_content"] = delta.reasoning
    if delta.content:
        parts["content"] = delta.content
    if delta.tool_calls:
        calls = enumerate(delta.tool_calls, n_calls)
        parts["tool_calls"] = [{"index": index, **call.to_dict()} for index, call in calls]
    return parts


def total_usage(usages: Sequence[pumice.Usage]) -> dict[str, Any]:
    """Of answers to one prompt, which counts once."""
    first = usages[0]
    generated = sum(each.completion_tokens for each in usages)
    return usage(first.prompt_tokens, first.cached_tokens, generated, sum(each.reasoning_tokens for each in usages))
