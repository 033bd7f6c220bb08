"""llama-server's own completions: ``POST /completion``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

import pumice
from pumice_server.answers import Streaming, event, json_response, unless_gone
from pumice_server.body import Body
from pumice_server.errors import bad_request
from pumice_server.figures import chat_logprob, timings
from pumice_server.models import service_of
from pumice_server.openai_completions import read_prompts
from pumice_server.options import MAX_N, generation_options
from pumice_server.service import Prompt, Service, merge

MAX_PROBS = 100
_NO_SLOT = -1  # requests have no slot of their own here
_STOP_TYPES = {"length": "limit", "context_full": "limit", "timeout": "limit", "cancelled": "none"}


async def completion(request: Request) -> Response:
    body = await Body.read(request)
    service = await service_of(request, body.first("model"))
    prompts = await _prompts(body, service)
    options = _options(body, service)
    n = body.integer("n_cmpl", body.integer("n", 1, 1, MAX_N), 1, MAX_N)
    stream, with_tokens = body.get("stream", bool, False), body.get("return_tokens", bool, False)
    salted = {**options, "cache_salt": request.state.cache_salt}
    streams = await service.complete(prompts, n, salted)
    answers = [_Answer(service, index, prompts[index // n], options) for index in range(len(streams))]
    if stream:
        return Streaming(_events(answers, streams), partial(service.end, streams))
    done = await unless_gone(request, service.gather(streams))
    told = [answer.whole(each, with_tokens) for answer, each in zip(answers, done, strict=True)]
    return json_response(told[0] if len(told) == 1 else told)


async def _prompts(body: Body, service: Service) -> list[Prompt]:
    """As token ids; a list of texts and ids is one prompt."""
    given = body.first("prompt")
    if isinstance(given, list) and {type(each) for each in given} == {int, str}:
        parts = [
            [each] if isinstance(each, int) else await service.tokenize(each, i == 0) for i, each in enumerate(given)
        ]
        return [[token for part in parts for token in part]]
    prompts = read_prompts(body)
    return [await service.tokenize(each) if isinstance(each, str) else each for each in prompts]


def _options(body: Body, service: Service) -> dict[str, Any]:
    if body.first("response_fields"):
        raise bad_request("response_fields is not supported")
    options = generation_options(body, service.model.n_ctx, service.model.tokenize)
    n_probs = body.integer("n_probs", 0, 0, MAX_PROBS)
    if n_probs:
        options["logprobs"] = n_probs
        options["logprobs_sampled"] = body.get("post_sampling_probs", bool, False)
    return options


@dataclass
class _Answer:
    """What is told of one completion."""

    service: Service
    index: int
    prompt: Prompt
    options: Mapping[str, Any]

    def whole(self, done: pumice.Completion, with_tokens: bool) -> dict[str, Any]:
        told = self.end(done)
        told |= {"content": done.text, "tokens": done.tokens if with_tokens else []}
        if done.logprobs:
            found = zip(done.tokens, done.logprobs, strict=True)
            told["completion_probabilities"] = [self.probability(token, each) for token, each in found]
        return told

    def end(self, done: pumice.Completion) -> dict[str, Any]:
        word = self.service.stopping_word(done, self.options["stop"])
        model = self.service.model
        return {
            "index": self.index,
            "content": "",
            "tokens": [],
            "id_slot": _NO_SLOT,
            "stop": True,
            "model": self.service.name,
            "tokens_predicted": done.timings.generated_tokens,
            "tokens_evaluated": done.timings.prompt_tokens,
            "generation_settings": {**model.config.sampling, **self.options, "n_ctx": model.n_ctx},
            "prompt": model.detokenize(self.prompt),  # type: ignore[arg-type]
            "has_new_line": "\n" in done.text,
            "truncated": False,
            "stop_type": _STOP_TYPES.get(done.finish_reason, "word" if word else "eos"),
            "stopping_word": word,
            "tokens_cached": done.timings.prompt_tokens + len(done.tokens),
            "timings": timings(done.timings),
        }

    def part(self, piece: pumice.Piece, n_predicted: int) -> dict[str, Any]:
        told = {
            "index": self.index,
            "content": piece.text,
            "tokens": [] if piece.token is None else [piece.token],
            "stop": False,
            "id_slot": _NO_SLOT,
            "tokens_predicted": n_predicted,
            "tokens_evaluated": len(self.prompt),
        }
        if piece.logprobs is not None and piece.token is not None:
            told["completion_probabilities"] = [self.probability(piece.token, piece.logprobs)]
        return told

    def probability(self, token: int, found: Any) -> dict[str, Any]:
        return chat_logprob(token, found, self.service.token_bytes)


async def _events(answers: Sequence[_Answer], streams: Sequence[pumice.AsyncStream]) -> AsyncIterator[bytes]:
    n_predicted = [0] * len(streams)
    async for index, piece in merge(streams):
        n_predicted[index] += piece.token is not None
        if piece.text or piece.token is not None:
            yield event(answers[index].part(piece, n_predicted[index]))
        if piece.finish_reason:
            yield event(answers[index].end(await streams[index].completion()))
