"""Usage, timings, log-probabilities and finish reasons in answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

import pumice

TokenBytes = Callable[[int], bytes]

_TOKEN_BYTES, _LOGPROB_BYTES = 8, 128  # of each in an answer
_ENDED_SHORT = ("length", "context_full", "timeout")


class HasLogprob(Protocol):
    @property
    def logprob(self) -> float: ...
    @property
    def top(self) -> Sequence[tuple[int, float]]: ...


class CompletionTokens(Protocol):
    """A finished completion."""

    @property
    def tokens(self) -> Sequence[int]: ...
    @property
    def logprobs(self) -> Sequence[HasLogprob] | None: ...


def size_of(completions: Sequence[CompletionTokens], n_others: int = 0) -> int:
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
    predicted: Mapping[str, int] = MappingProxyType({}),
) -> dict[str, Any]:
    heard = {"audio_tokens": audio_tokens} if audio_tokens else {}
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": cached_tokens, **heard},
        "completion_tokens_details": {"reasoning_tokens": reasoning_tokens, **predicted},
    }


def predicted(timings: Sequence[pumice.Timings]) -> dict[str, int]:
    """Return OpenAI's counts of tokens of a predicted text for the answers of a request with one."""
    n_accepted = sum(timing.n_predicted_accepted for timing in timings)
    n_rejected = sum(timing.n_predicted for timing in timings) - n_accepted
    return {"accepted_prediction_tokens": n_accepted, "rejected_prediction_tokens": n_rejected}


def build_info(compat: bool) -> str:
    """Return program and version, the fingerprint of answers. llama-server's begins with a build number."""
    return f"{'b0-' if compat else ''}pumice-{pumice.__version__}"


def timings(times: pumice.Timings) -> dict[str, Any]:
    """Return ``Timings`` in llama-server's form: milliseconds, tokens, tokens per second."""
    read = times.prompt_tokens - times.prompt_cached
    drafted = {"draft_n": times.n_drafted, "draft_n_accepted": times.n_accepted} if times.n_drafted else {}
    return {
        "queue_ms": times.queue_seconds * 1000,
        "cache_n": times.prompt_cached,
        "prompt_n": read,
        "prompt_ms": times.prompt_seconds * 1000,
        "prompt_per_token_ms": times.prompt_seconds * 1000 / max(1, read),
        "prompt_per_second": times.prompt_per_second,
        "predicted_n": times.generated_tokens,
        "predicted_ms": times.generation_seconds * 1000,
        "predicted_per_token_ms": times.generation_seconds * 1000 / max(1, times.generated_tokens - 1),
        "predicted_per_second": times.generation_per_second,
        **drafted,
    }


def chat_logprob(token: int, found: HasLogprob, spell: TokenBytes) -> dict[str, Any]:
    """Return the form of chat completions, with llama-server's token ids."""
    top = [_entry(other, logprob, spell) for other, logprob in found.top]
    return {**_entry(token, found.logprob, spell), "top_logprobs": top}


def _entry(token: int, logprob: float, spell: TokenBytes) -> dict[str, Any]:
    data = spell(token)
    text = data.decode("utf-8", "replace")
    return {"id": token, "token": text, "bytes": list(data), "logprob": max(logprob, LEAST_LOGPROB)}


LEAST_LOGPROB = -9999.0
"""OpenAI's log-probability of impossible tokens, since JSON has no infinities."""
