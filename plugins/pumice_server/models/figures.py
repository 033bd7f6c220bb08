"""Usage, timings, log-probabilities and finish reasons in answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import pumice
from pumice_server.answer_types import (
    CandidateLogprob,
    CompletionDetails,
    PromptDetails,
    Timings,
    TokenLogprob,
    Usage,
)

TokenBytes = Callable[[int], bytes]

_TOKEN_BYTES, _LOGPROB_BYTES = 8, 128  # of each in an answer
_ENDED_SHORT = ("length", "context_full", "timeout")


class HasLogprob(Protocol):
    @property
    def logprob(self) -> float: ...
    @property
    def top(self) -> Sequence[tuple[int, float]]: ...


def size_of(completions: Sequence[pumice.Completion | pumice.ChatCompletion], n_others: int = 0) -> int:
    """Return the approximate bytes of an answer with these completions and ``n_others`` further tokens."""
    n_logprobs = [1 + len(logprob.top) for done in completions for logprob in done.logprobs or ()]
    return _TOKEN_BYTES * (n_others + sum(len(done.tokens) for done in completions)) + _LOGPROB_BYTES * sum(n_logprobs)


def finish_reason(reason: str) -> str:
    """Return OpenAI's finish reason: stop, length or tool_calls."""
    return "length" if reason in _ENDED_SHORT else "stop" if reason == "cancelled" else reason


def usage(
    prompt_tokens: int,
    cached_tokens: int,
    completion_tokens: int,
    reasoning_tokens: int = 0,
    audio_tokens: int = 0,
    predicting: Sequence[pumice.Timings] = (),
) -> Usage:
    """Return OpenAI's usage; ``predicting``: timings of answers to a request with a predicted text."""
    details = CompletionDetails(reasoning_tokens=reasoning_tokens)
    if predicting:
        details.accepted_prediction_tokens = n_accepted = sum(times.n_predicted_accepted for times in predicting)
        details.rejected_prediction_tokens = sum(times.n_predicted for times in predicting) - n_accepted
    return Usage(
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        total_tokens=prompt_tokens + completion_tokens,
        prompt_tokens_details=PromptDetails(cached_tokens=cached_tokens, audio_tokens=audio_tokens or None),
        completion_tokens_details=details,
    )


def build_info(compat: bool) -> str:
    """Return program and version, the fingerprint of answers. llama-server's begins with a build number."""
    return f"{'b0-' if compat else ''}pumice-{pumice.__version__}"


def timings(times: pumice.Timings) -> Timings:
    """Return ``Timings`` in llama-server's format: milliseconds, tokens, tokens per second."""
    read = times.prompt_tokens - times.prompt_cached
    return Timings(
        queue_ms=times.queue_seconds * 1000,
        cache_n=times.prompt_cached,
        prompt_n=read,
        prompt_ms=times.prompt_seconds * 1000,
        prompt_per_token_ms=times.prompt_seconds * 1000 / max(1, read),
        prompt_per_second=times.prompt_per_second,
        predicted_n=times.generated_tokens,
        predicted_ms=times.generation_seconds * 1000,
        predicted_per_token_ms=times.generation_seconds * 1000 / max(1, times.generated_tokens - 1),
        predicted_per_second=times.generation_per_second,
        draft_n=times.n_drafted or None,
        draft_n_accepted=times.n_accepted if times.n_drafted else None,
    )


def token_logprob(token: int, found: HasLogprob, spell: TokenBytes, sampled: bool = False) -> TokenLogprob:
    """Return the log-probabilities of a token, or its probabilities after the sampler chain (``sampled``)."""
    top = [CandidateLogprob(**_entry(other, logprob, spell, sampled)) for other, logprob in found.top]
    return TokenLogprob(
        **_entry(token, found.logprob, spell, sampled),
        top_logprobs=None if sampled else top,
        top_probs=top if sampled else None,
    )


def _entry(token: int, logprob: float, spell: TokenBytes, sampled: bool) -> dict[str, Any]:
    data = spell(token)
    value = max(logprob, LEAST_LOGPROB)
    said = {"prob": math.exp(value)} if sampled else {"logprob": value}
    return {"id": token, "token": data.decode("utf-8", "replace"), "bytes": list(data), **said}


LEAST_LOGPROB = -9999.0
"""OpenAI's log-probability of impossible tokens, since JSON has no infinities."""
