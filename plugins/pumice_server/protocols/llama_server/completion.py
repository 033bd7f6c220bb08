"""llama-server's own completions: ``POST /completion``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any

from starlette.requests import Request

import pumice
from pumice_server.interface import (
    WORK,
    MediaPrompt,
    Reading,
    Report,
    Service,
    Streaming,
    Whole,
    aside,
    caching_options,
    generation_options,
    is_mixed,
    make_answer,
    media_prompt,
    mixed_tokens,
    prompt_string,
    read_prompts,
    service_of,
    size_of,
    unless_gone,
)
from pumice_server.limits import MAX_PROMPTS
from pumice_server.protocols.llama_server.answer import NativeAnswer, Selection
from pumice_server.protocols.llama_server.answer_types import NativeChunk, NativeCompletions
from pumice_server.protocols.llama_server.bodies import NativeCompletionBody, NativeGenerationBody


async def completion(request: Request, body: NativeCompletionBody) -> Whole[NativeCompletions] | Streaming[NativeChunk]:
    """Complete prompts, in the format of llama-server's completions."""
    service = await service_of(request, body.model)
    return await answer(request, service, body, await body.aside(_prompts, body, service))


async def answer(
    request: Request, service: Service, body: NativeGenerationBody, prompts: Sequence[list[int] | MediaPrompt]
) -> Whole[NativeCompletions] | Streaming[NativeChunk]:
    """Complete prompts, as the other fields of the body say."""
    options = await body.aside(_options, body, service)
    n = body.n if body.n_cmpl is None else body.n_cmpl
    selection = Selection(body.return_tokens, body.response_fields or [])
    report = Report(body, body.stream)
    caching = caching_options(request, body)
    streams = await unless_gone(request, service.complete(prompts, n, {**options, **caching}, report.progress))
    read = [prompt.tokens if isinstance(prompt, MediaPrompt) else prompt for prompt in prompts]
    texts = [prompt.text if isinstance(prompt, MediaPrompt) else None for prompt in prompts]
    answers = [
        NativeAnswer(service, i, read[i // n], options, selection, body.id_slot, texts[i // n])
        for i in range(len(streams))
    ]
    if body.stream:
        ping = body.sse_ping_interval if body.sse_ping_interval > 0 else None
        return Streaming(_events(answers, streams, report), partial(service.end, streams), ping=ping)
    done = await unless_gone(request, service.gather(streams))

    def told() -> Any:
        whole = [selection.only(answer.whole(completion)) for answer, completion in zip(answers, done, strict=True)]
        return whole[0] if len(whole) == 1 else whole

    return await make_answer(told, size_of(done, sum(map(len, read))))


def _prompts(body: NativeCompletionBody, service: Service) -> Sequence[list[int] | MediaPrompt]:
    """Return the token ids of each prompt, or its texts and images. A list that mixes texts and ids is one prompt."""
    prompt = body.prompt
    items = prompt if isinstance(prompt, list) and len(prompt) <= MAX_PROMPTS else [prompt]
    with_images = [media_prompt(item) for item in items]
    if not any(with_images):
        return _token_prompts(prompt, service)
    return [media or _token_prompts(item, service)[0] for media, item in zip(with_images, items, strict=True)]


def _token_prompts(given: Any, service: Service) -> list[list[int]]:
    prompt = prompt_string(given)
    if is_mixed(prompt):
        prompt = [prompt]
    if isinstance(prompt, list) and len(prompt) <= MAX_PROMPTS:
        texts = map(prompt_string, prompt)
        prompt = [mixed_tokens(part, service, add_special=True) if is_mixed(part) else part for part in texts]
    prompts = read_prompts(prompt)
    return list(map(service.tokens_of, prompts))


def _options(body: NativeGenerationBody, service: Service) -> dict[str, Any]:
    options = generation_options(body, service)
    if body.n_probs:
        options["logprobs"] = body.n_probs
        options["logprobs_sampled"] = body.post_sampling_probs
    return options


async def _events(
    answers: Sequence[NativeAnswer], streams: Sequence[pumice.AsyncStream], report: Report
) -> AsyncIterator[Any]:
    async for index, pieces in report.merge(streams):
        answer, times = answers[index], streams[index].timings
        if isinstance(pieces, Reading):
            yield answer.part([], 0, **pieces.fields)
            continue
        tokens = [piece for piece in pieces if piece.text or piece.token is not None]
        if answer.service.compat:  # one token per event
            for piece in tokens:
                yield answer.part([piece], times.generated_tokens, **report.fields(times))
        elif tokens:
            yield answer.part(tokens, times.generated_tokens, **report.fields(times))
        if pieces[-1].finish_reason:
            done = await streams[index].completion()
            end = await aside(answer.end, done, size=WORK * len(answer.prompt))
            yield answer.selection.only(end)
