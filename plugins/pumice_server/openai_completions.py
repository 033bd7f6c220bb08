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
from pumice_server.service import Prompt, Service, merge

MAX_PROMPTS = 128
MAX_IDS = 1 << 20  # tokens of a prompt, whatever the context
MAX_LOGPROBS = 20
_MAX_TOKENS = 16  # OpenAI's default for completions


async def completions(request: Request) -> Response:
    body = await Body.read(request)
    service = await service_of(request, body.first("model"))
    stream, with_usage = body.get("stream", bool, False), body.wants_usage
    prompts = read_prompts(body)
    options = _options(body, service, request.state.cache_salt)
    streams = await service.complete(prompts, body.integer("n", 1, 1, MAX_N), options)
    part = _head(service)
    if stream:
        return Streaming(_events(part, service, streams, len(prompts), with_usage), partial(service.end, streams))
    done = await unless_gone(request, service.gather(streams))
    choices = [_choice(service, index, each) for index, each in enumerate(done)]
    return json_response(part(choices, usage=_total_usage(streams, len(prompts)), timings=timings(streams[0].timings)))


def read_prompts(body: Body) -> list[Prompt]:
    """The prompts: a text, token ids, or a list of these. Raises HTTPException."""
    given = body.first("prompt")
    if isinstance(given, list) and any(len(each) > MAX_IDS for each in (given, *given) if isinstance(each, list)):
        raise bad_request(f"prompt: a list of at most {MAX_IDS} token ids")
    if isinstance(given, str) or (isinstance(given, list) and given and all(_is_id(each) for each in given)):
        given = [given]
    if not isinstance(given, list) or not all(_is_prompt(each) for each in given):
        raise bad_request("prompt must be text, a list of token ids, or a list of these")
    if not 1 <= len(given) <= MAX_PROMPTS:
        raise bad_request(f"prompt: 1 to {MAX_PROMPTS} prompts are served at once, not {len(given)}")
    return given


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_prompt(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and all(_is_id(each) for each in value))


def _options(body: Body, service: Service, cache_salt: str) -> dict[str, Any]:
    for name in ("echo", "best_of"):
        if body.first(name) not in (None, False, 1, body.first("n")):
            raise bad_request(f"{name} is not supported")
    options = generation_options(body, service)
    if body.first("n_predict", "max_completion_tokens", "max_tokens") is None:
        options["max_tokens"] = _MAX_TOKENS
    if "logprobs" in body.fields:
        options["logprobs"] = body.integer("logprobs", 0, 0, MAX_LOGPROBS)
    return {**options, "cache_salt": cache_salt}


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


def _choice(service: Service, index: int, done: pumice.Completion) -> dict[str, Any]:
    logprobs = _logprobs(service, zip(done.tokens, done.logprobs, strict=True)) if done.logprobs else None
    reason = finish_reason(done.finish_reason)
    return {"text": done.text, "index": index, "logprobs": logprobs, "finish_reason": reason}


async def _events(
    part: Callable[..., dict[str, Any]],
    service: Service,
    streams: Sequence[pumice.AsyncStream],
    n_prompts: int,
    with_usage: bool,
) -> AsyncIterator[bytes]:
    def chunk(index: int, text: str, logprobs: Any = None, reason: str | None = None) -> bytes:
        return event(part([{"text": text, "index": index, "logprobs": logprobs, "finish_reason": reason}]))

    plain = [Frame(partial(chunk, index)) for index in range(len(streams))]
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
