"""OpenAI's completions: text goes on, without a chat template."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

import pumice
from pumice_server.answers import DONE, Frame, Streaming, event, json_response, unless_gone
from pumice_server.body import Body
from pumice_server.errors import bad_request
from pumice_server.figures import LEAST_LOGPROB, finish_reason, timings, usage
from pumice_server.models import service_of
from pumice_server.options import MAX_N, generation_options
from pumice_server.prompts import fill_in, read_prompts
from pumice_server.service import Prompt, Service, merge

MAX_LOGPROBS = 20
_MAX_TOKENS = 16  # OpenAI's default for completions


async def completions(request: Request) -> Response:
    body = await Body.read(request)
    service = await service_of(request, body.first("model"))
    stream, with_usage = body.get("stream", bool, False), body.wants_usage
    prompts = read_prompts(body)
    options = _options(body, service, request.state.cache_salt)
    n = body.integer("n", 1, 1, MAX_N)
    best_of = body.integer("best_of", n, n, MAX_N)
    if stream and best_of > n:
        raise bad_request("best_of needs all of the completions, and cannot be streamed")
    read: Sequence[Prompt] = prompts
    if body.get("suffix", str, ""):
        read = [await fill_in(service, prompt, body.fields["suffix"]) for prompt in prompts]
    tracked = {"logprobs": 0, **options} if best_of > n else options
    streams = await service.complete(read, best_of, tracked)
    echoed = [_echoed(body, service, prompt) for prompt in prompts for _ in range(n)]
    part = _head(service)
    if stream:
        parts = _events(part, service, streams, echoed, len(prompts), with_usage)
        return Streaming(parts, partial(service.end, streams))
    done = await unless_gone(request, service.gather(streams))
    best = [each for i in range(len(prompts)) for each in _likeliest(done[i * best_of : (i + 1) * best_of], n)]
    choices = [
        _choice(service, index, each, echo, "logprobs" in options)
        for index, (each, echo) in enumerate(zip(best, echoed, strict=True))
    ]
    return json_response(part(choices, usage=_total_usage(streams, len(prompts)), timings=timings(streams[0].timings)))


def _options(body: Body, service: Service, cache_salt: str) -> dict[str, Any]:
    options = generation_options(body, service)
    if body.first("n_predict", "max_completion_tokens", "max_tokens") is None:
        options["max_tokens"] = _MAX_TOKENS
    if "logprobs" in body.fields:
        options["logprobs"] = body.integer("logprobs", 0, 0, MAX_LOGPROBS)
    return {**options, "cache_salt": cache_salt}


def _echoed(body: Body, service: Service, prompt: Prompt) -> str:
    """The prompt where it is to be repeated before its completion, else nothing."""
    if not body.get("echo", bool, False):
        return ""
    if "logprobs" in body.fields:
        raise bad_request("echo with logprobs is not supported: there are no log-probabilities of prompts")
    return prompt if isinstance(prompt, str) else service.model.detokenize(prompt)


def _likeliest(found: Sequence[pumice.Completion], n: int) -> Sequence[pumice.Completion]:
    """Those of the highest mean log-probability a token, the highest first; all of them as they are."""
    if len(found) == n:
        return found

    def likelihood(done: pumice.Completion) -> float:
        logprobs = [each.logprob for each in done.logprobs or ()]
        return sum(logprobs) / max(1, len(logprobs))

    return sorted(found, key=likelihood, reverse=True)[:n]


def _head(service: Service) -> Callable[..., dict[str, Any]]:
    """What makes the parts of one answer."""
    common = {
        "id": f"cmpl-{secrets.token_urlsafe(18)}",
        "object": "text_completion",
        "created": int(time.time()),
        "model": service.name,
        "system_fingerprint": f"pumice-{pumice.__version__}",
    }
    return lambda choices, **others: {**common, "choices": choices, **others}


def _choice(service: Service, index: int, done: pumice.Completion, echoed: str, with_logprobs: bool) -> dict[str, Any]:
    logprobs = None
    if done.logprobs and with_logprobs:
        logprobs = _logprobs(service, zip(done.tokens, done.logprobs, strict=True))
    reason = finish_reason(done.finish_reason)
    return {"text": echoed + done.text, "index": index, "logprobs": logprobs, "finish_reason": reason}


async def _events(
    part: Callable[..., dict[str, Any]],
    service: Service,
    streams: Sequence[pumice.AsyncStream],
    echoed: Sequence[str],
    n_prompts: int,
    with_usage: bool,
) -> AsyncIterator[bytes]:
    def chunk(index: int, text: str, logprobs: Any = None, reason: str | None = None) -> bytes:
        return event(part([{"text": text, "index": index, "logprobs": logprobs, "finish_reason": reason}]))

    plain = [Frame(partial(chunk, index)) for index in range(len(streams))]
    for index, text in enumerate(echoed):
        if text:
            yield plain[index](text)
    async for index, pieces in merge(streams):
        text, ended = "".join([piece.text for piece in pieces]), pieces[-1].finish_reason
        found = [(each.token, each.logprobs) for each in pieces if each.logprobs and each.token is not None]
        if found or ended:
            logprobs = _logprobs(service, found) if found else None
            yield chunk(index, text, logprobs, finish_reason(ended) if ended else None)
        elif text:
            yield plain[index](text)
    if with_usage:
        end = {"usage": _total_usage(streams, n_prompts), "timings": timings(streams[0].timings)}
        yield event(part([], **end))
    yield DONE


def _logprobs(service: Service, found: Any) -> dict[str, Any]:
    """OpenAI's form for completions. ``found``: tokens, each with its log-probabilities."""

    def text(token: int) -> str:
        return service.token_bytes(token).decode("utf-8", "replace")

    told: dict[str, list[Any]] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    offset = 0
    for token, each in found:
        told["tokens"].append(text(token))
        told["token_logprobs"].append(max(each.logprob, LEAST_LOGPROB))
        told["top_logprobs"].append({text(other): max(value, LEAST_LOGPROB) for other, value in each.top})
        told["text_offset"].append(offset)
        offset += len(text(token))
    return told


def _total_usage(streams: Sequence[pumice.AsyncStream], n_prompts: int) -> dict[str, Any]:
    """Each prompt counts once, however many completions it has."""
    all_timings = [stream.timings for stream in streams]
    firsts = all_timings[:: len(streams) // n_prompts]
    return usage(
        sum(each.prompt_tokens for each in firsts),
        sum(each.prompt_cached for each in firsts),
        sum(each.generated_tokens for each in all_timings),
    )
