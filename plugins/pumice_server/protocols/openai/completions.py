"""Endpoint for OpenAI's completions, without a chat template."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from starlette.requests import Request

import pumice
from pumice_server.answer_types import Usage
from pumice_server.interface import (
    DONE,
    Reading,
    Report,
    Service,
    Streaming,
    TextOrTokens,
    Whole,
    bad_request,
    caching_options,
    event,
    fill_in,
    finish_reason,
    generation_options,
    make_answer,
    read_prompts,
    service_of,
    size_of,
    timings,
    unless_gone,
    usage,
)
from pumice_server.limits import MAX_N
from pumice_server.protocols.openai.answer_types import CompletionChoice, TextCompletion
from pumice_server.protocols.openai.bodies import CompletionBody
from pumice_server.protocols.openai.prompt_logprobs import PromptReport, TextLogprobs, read_head

_MAX_TOKENS = 16  # OpenAI's default for completions


async def completions(request: Request, body: CompletionBody) -> Whole[TextCompletion] | Streaming[TextCompletion]:
    """Complete prompts without a chat template, in the format of OpenAI's completions."""
    service = await service_of(request, body.model)
    prompts = await body.aside(read_prompts, body.prompt)
    options = await body.aside(_options, body, service, caching_options(request, body))
    n = body.n
    best_of = n if body.best_of is None else body.best_of
    if best_of < n:
        raise bad_request(f"best_of must be between n = {n} and {MAX_N}, not {best_of}")
    if body.stream and best_of > n:
        raise bad_request("best_of needs all of the completions, and cannot be streamed")
    read: Sequence[TextOrTokens] = prompts
    if body.suffix:
        read = await body.aside(lambda: [fill_in(service, prompt, body.suffix) for prompt in prompts])
    tracked = {"logprobs": 0, **options} if best_of > n else options
    heads = [await read_head(body, service, prompt, options) for prompt in prompts]
    report = Report(body, body.stream)
    streams = await service.complete(read, best_of, tracked, report.progress)
    echoed = [head for head in heads for _ in range(n)]
    part = _head(service)
    if body.stream:
        parts = _events(part, service, streams, echoed, len(prompts), report, "logprobs" in options)
        return Streaming(parts, partial(service.end, streams))
    done = await unless_gone(request, service.gather(streams))
    best = [
        completion for i in range(len(prompts)) for completion in _likeliest(done[i * best_of : (i + 1) * best_of], n)
    ]

    def answer() -> TextCompletion:
        choices = [
            _choice(service, index, completion, echo, "logprobs" in options)
            for index, (completion, echo) in enumerate(zip(best, echoed, strict=True))
        ]
        return part(choices, usage=_total_usage(streams, len(prompts)), timings=timings(streams[0].timings))

    return await make_answer(answer, size_of(best) + sum(head.size for head in echoed))


def _options(body: CompletionBody, service: Service, caching: Mapping[str, Any]) -> dict[str, Any]:
    options = generation_options(body, service)
    if body.token_limit() is None:
        options["max_tokens"] = _MAX_TOKENS
    if body.logprobs is not None:
        options["logprobs"] = body.logprobs
    elif body.n_probs:
        options["logprobs"] = body.n_probs
    return {**options, **caching}


def _likeliest(completions: Sequence[pumice.Completion], n: int) -> Sequence[pumice.Completion]:
    """Return the n completions of the highest mean log-probability per token, best first; all of them unsorted."""
    if len(completions) == n:
        return completions

    def likelihood(done: pumice.Completion) -> float:
        logprobs = [completion.logprob for completion in done.logprobs or ()]
        return sum(logprobs) / max(1, len(logprobs))

    return sorted(completions, key=likelihood, reverse=True)[:n]


def _head(service: Service) -> Callable[..., TextCompletion]:
    """Return a function that builds the parts of one answer."""
    common: dict[str, Any] = {
        "id": f"cmpl-{secrets.token_urlsafe(18)}",
        "object": "text_completion",
        "created": int(time.time()),  # noqa: TID251 (shown)
        "model": service.name,
        "system_fingerprint": service.fingerprint,
    }
    return lambda choices, **others: TextCompletion(**common, choices=choices, **others)


def _choice(
    service: Service, index: int, done: pumice.Completion, head: PromptReport, with_logprobs: bool
) -> CompletionChoice:
    logprobs = None
    if with_logprobs:
        tokens = zip(done.tokens, done.logprobs or (), strict=True)
        logprobs = TextLogprobs(service, head).of([*head.logprobs, *tokens, *filter(None, [done.end])])
    return CompletionChoice(
        index=index,
        text=head.text + done.text,
        logprobs=logprobs,
        finish_reason=finish_reason(done.finish_reason),
        prompt_logprobs=head.by_position or None,
    )


async def _events(
    part: Callable[..., TextCompletion],
    service: Service,
    streams: Sequence[pumice.AsyncStream],
    heads: Sequence[PromptReport],
    n_prompts: int,
    report: Report,
    with_logprobs: bool,
) -> AsyncIterator[TextCompletion | bytes]:
    def chunk(
        index: int, text: str, logprobs: Any = None, reason: str | None = None, others: Mapping[str, Any] | None = None
    ) -> TextCompletion:
        fields = others or report.fields(streams[index].timings, ended=reason is not None)
        return part([CompletionChoice(index=index, text=text, logprobs=logprobs, finish_reason=reason)], **fields)

    def content(index: int, text: str) -> bytes:
        return event(chunk(index, text))

    plain = [report.frame(partial(content, index)) for index in range(len(streams))]
    reports = [TextLogprobs(service, head) for head in heads]
    for index, head in enumerate(heads):
        if head.logprobs:
            yield chunk(index, head.text, reports[index].of(head.logprobs))
        elif head.text:
            yield plain[index](head.text)
    async for index, pieces in report.merge(streams):
        if isinstance(pieces, Reading):
            yield chunk(index, "", others=pieces.fields)
            continue
        text, ended = "".join([piece.text for piece in pieces]), pieces[-1].finish_reason
        tokens = [(piece.token, piece.logprobs) for piece in pieces if piece.logprobs and piece.token is not None]
        tokens += filter(None, [pieces[-1].end])
        if tokens or ended:
            logprobs = reports[index].of(tokens) if with_logprobs else None
            yield chunk(index, text, logprobs, finish_reason(ended) if ended else None)
        elif text:
            yield plain[index](text)
    if report.usage:
        yield part([], usage=_total_usage(streams, n_prompts), timings=timings(streams[0].timings))
    yield DONE


def _total_usage(streams: Sequence[pumice.AsyncStream], n_prompts: int) -> Usage:
    """Return the usage of completions; each prompt counts once."""
    all_timings = [stream.timings for stream in streams]
    firsts = all_timings[:: len(streams) // n_prompts]
    return usage(
        sum(timing.prompt_tokens for timing in firsts),
        sum(timing.prompt_cached for timing in firsts),
        sum(timing.generated_tokens for timing in all_timings),
    )
