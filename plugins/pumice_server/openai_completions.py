"""OpenAI's completions: text goes on, without a chat template."""

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
from pumice_server.figures import finish_reason, size_of, timings, usage
from pumice_server.limits import MAX_LOGPROBS
from pumice_server.models import service_of
from pumice_server.options import cache_salt, generation_options
from pumice_server.prompt_logprobs import Head, read_head, text_logprobs
from pumice_server.prompts import fill_in, read_prompts
from pumice_server.report import Reading, Report
from pumice_server.service import Prompt, Service

_MAX_TOKENS = 16  # OpenAI's default for completions


async def completions(request: Request) -> Response:
    body = await Body.read(request)
    service = await service_of(request, body.first("model"))
    stream = body.get("stream", bool, False)
    prompts = await body.aside(read_prompts, body)
    options = await body.aside(_options, body, service, cache_salt(request, body))
    n = body.integer("n", 1)
    best_of = body.integer("best_of", n, least=n)
    if stream and best_of > n:
        raise bad_request("best_of needs all of the completions, and cannot be streamed")
    read: Sequence[Prompt] = prompts
    if body.get("suffix", str, ""):
        read = await body.aside(lambda: [fill_in(service, prompt, body.fields["suffix"]) for prompt in prompts])
    tracked = {"logprobs": 0, **options} if best_of > n else options
    heads = [await read_head(body, service, prompt, options) for prompt in prompts]
    report = Report(body, stream)
    streams = await service.complete(read, best_of, tracked, report.progress)
    echoed = [head for head in heads for _ in range(n)]
    part = _head(service)
    if stream:
        parts = _events(part, service, streams, echoed, len(prompts), report)
        return Streaming(parts, partial(service.end, streams))
    done = await unless_gone(request, service.gather(streams))
    best = [each for i in range(len(prompts)) for each in _likeliest(done[i * best_of : (i + 1) * best_of], n)]

    def told() -> dict[str, Any]:
        choices = [
            _choice(service, index, each, echo, "logprobs" in options)
            for index, (each, echo) in enumerate(zip(best, echoed, strict=True))
        ]
        return part(choices, usage=_total_usage(streams, len(prompts)), timings=timings(streams[0].timings))

    return await make_answer(told, size_of(best) + sum(head.size for head in echoed))


def _options(body: Body, service: Service, salt: str) -> dict[str, Any]:
    own = {name: value for name, value in body.fields.items() if name != "prompt_logprobs"}
    options = generation_options(Body(own), service)
    if body.first("n_predict", "max_completion_tokens", "max_tokens") is None:
        options["max_tokens"] = _MAX_TOKENS
    if "logprobs" in body.fields:
        options["logprobs"] = body.integer("logprobs", 0)
    elif n_probs := body.integer("n_probs", 0, most=MAX_LOGPROBS):  # llama-server's
        options["logprobs"] = n_probs
    return {**options, "cache_salt": salt}


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
        "system_fingerprint": service.fingerprint,
    }
    return lambda choices, **others: {**common, "choices": choices, **others}


def _choice(service: Service, index: int, done: pumice.Completion, head: Head, with_logprobs: bool) -> dict[str, Any]:
    logprobs = None
    if with_logprobs:
        found = zip(done.tokens, done.logprobs or (), strict=True)
        logprobs = text_logprobs(service, [*head.logprobs, *found])
    reason = finish_reason(done.finish_reason)
    told = {"text": head.text + done.text, "index": index, "logprobs": logprobs, "finish_reason": reason}
    return {**told, "prompt_logprobs": head.told} if head.told else told


async def _events(
    part: Callable[..., dict[str, Any]],
    service: Service,
    streams: Sequence[pumice.AsyncStream],
    heads: Sequence[Head],
    n_prompts: int,
    report: Report,
) -> AsyncIterator[bytes]:
    def chunk(
        index: int, text: str, logprobs: Any = None, reason: str | None = None, others: Mapping[str, Any] | None = None
    ) -> bytes:
        told = others or report.fields(streams[index].timings, ended=reason is not None)
        return event(part([{"text": text, "index": index, "logprobs": logprobs, "finish_reason": reason}], **told))

    plain = [report.frame(partial(chunk, index)) for index in range(len(streams))]
    lengths = [0] * len(streams)  # of what was told with log-probabilities
    for index, head in enumerate(heads):
        if head.logprobs:
            yield chunk(index, head.text, text_logprobs(service, head.logprobs))
            lengths[index] = len(head.text)
        elif head.text:
            yield plain[index](head.text)
    async for index, pieces in report.merge(streams):
        if isinstance(pieces, Reading):
            yield chunk(index, "", others=pieces.fields)
            continue
        text, ended = "".join([piece.text for piece in pieces]), pieces[-1].finish_reason
        found = [(each.token, each.logprobs) for each in pieces if each.logprobs and each.token is not None]
        if found or ended:
            logprobs = text_logprobs(service, found, lengths[index]) if found else None
            lengths[index] += len(text)
            yield chunk(index, text, logprobs, finish_reason(ended) if ended else None)
        elif text:
            yield plain[index](text)
    if report.usage:
        end = {"usage": _total_usage(streams, n_prompts), "timings": timings(streams[0].timings)}
        yield event(part([], **end))
    yield DONE


def _total_usage(streams: Sequence[pumice.AsyncStream], n_prompts: int) -> dict[str, Any]:
    """Each prompt counts once, however many completions it has."""
    all_timings = [stream.timings for stream in streams]
    firsts = all_timings[:: len(streams) // n_prompts]
    return usage(
        sum(each.prompt_tokens for each in firsts),
        sum(each.prompt_cached for each in firsts),
        sum(each.generated_tokens for each in all_timings),
    )
