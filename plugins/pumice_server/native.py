"""llama-server's own completions: ``POST /completion``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

import pumice
from pumice_server.answers import Streaming, event, make_answer, ping_seconds, unless_gone
from pumice_server.body import Body
from pumice_server.figures import size_of
from pumice_server.limits import MAX_PROMPTS
from pumice_server.models import service_of
from pumice_server.native_answer import NativeAnswer, Wanted
from pumice_server.options import cache_salt, generation_options
from pumice_server.prompts import mixed_tokens, prompt_string, read_prompts
from pumice_server.report import Reading, Report
from pumice_server.service import WORK, Service
from pumice_server.work import aside


async def completion(request: Request) -> Response:
    body = await Body.read(request)
    service = await service_of(request, body.first("model"))
    return await answer(request, service, body, await body.aside(_prompts, body, service))


async def answer(request: Request, service: Service, body: Body, prompts: Sequence[list[int]]) -> Response:
    """Complete prompts, as the other fields of the body say."""
    options = await body.aside(_options, body, service)
    n = body.integer("n_cmpl", body.integer("n", 1))
    stream, wanted = body.get("stream", bool, False), Wanted.read(body)
    report = Report(body, stream)
    slot = request.state.client, body.integer("id_slot", -1)
    streams = await service.complete(prompts, n, {**options, "cache_salt": cache_salt(request, body)}, report.progress)
    answers = [NativeAnswer(service, i, prompts[i // n], options, wanted, slot) for i in range(len(streams))]
    if stream:
        parts = _events(answers, streams, report)
        return Streaming(parts, partial(service.end, streams), ping=ping_seconds(body))
    done = await unless_gone(request, service.gather(streams))

    def told() -> Any:
        whole = [wanted.only(answer.whole(each)) for answer, each in zip(answers, done, strict=True)]
        return whole[0] if len(whole) == 1 else whole

    return await make_answer(told, size_of(done, sum(map(len, prompts))))


def _prompts(body: Body, service: Service) -> list[list[int]]:
    """As token ids; a list of texts and ids is one prompt, alone and among others."""
    given = prompt_string(body.first("prompt"))
    if _is_mixed(given):
        given = [given]
    if isinstance(given, list) and len(given) <= MAX_PROMPTS:
        texts = map(prompt_string, given)
        given = [mixed_tokens(each, service, add_special=True) if _is_mixed(each) else each for each in texts]
    prompts = read_prompts(Body({"prompt": given}))
    return list(map(service.tokens_of, prompts))


def _is_mixed(prompt: Any) -> bool:
    return isinstance(prompt, list) and {type(each) for each in prompt} == {int, str}


def _options(body: Body, service: Service) -> dict[str, Any]:
    options = generation_options(body, service)
    n_probs = body.integer("n_probs", 0)
    if n_probs:
        options["logprobs"] = n_probs
        options["logprobs_sampled"] = body.get("post_sampling_probs", bool, False)
    return options


async def _events(
    answers: Sequence[NativeAnswer], streams: Sequence[pumice.AsyncStream], report: Report
) -> AsyncIterator[bytes]:
    async for index, pieces in report.merge(streams):
        answer, times = answers[index], streams[index].timings
        if isinstance(pieces, Reading):
            yield event({**answer.begun(0), **pieces.fields})
            continue
        tokens = [piece for piece in pieces if piece.text or piece.token is not None]
        if answer.service.compat:  # a token in each event
            for piece in tokens:
                yield event(answer.part([piece], times.generated_tokens) | report.fields(times))
        elif tokens:
            yield event(answer.part(tokens, times.generated_tokens) | report.fields(times))
        if pieces[-1].finish_reason:
            done = await streams[index].completion()
            end = await aside(answer.end, done, size=WORK * len(answer.prompt))
            yield event(answer.wanted.only(end))
