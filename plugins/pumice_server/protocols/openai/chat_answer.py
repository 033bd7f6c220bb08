"""Parts of the answers of OpenAI's chat completions."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pumice
from pumice_server.interface import SAMPLING, Service, chat_logprob, generation_settings, predicted, usage


class PartBuilder:
    """Builds the parts of an answer with their common fields; with ``options``, its end has ``__verbose``."""

    def __init__(
        self, service: Service, options: Mapping[str, Any] | None = None, has_prediction: bool = False
    ) -> None:
        self._service, self._options, self._has_prediction = service, options, has_prediction
        self._spell = service.token_bytes
        self.id = f"chatcmpl-{secrets.token_urlsafe(18)}"
        self._model = service.name
        self._fingerprint = service.fingerprint
        self._created = int(time.time())

    def part(self, kind: str, choices: Sequence[Any], **others: Any) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": self._created,
            "model": self._model,
            "system_fingerprint": self._fingerprint,
            "choices": choices,
            **others,
        }

    def usage(self, usages: Sequence[pumice.Usage], streams: Sequence[pumice.AsyncChatStream]) -> dict[str, Any]:
        """Return the usage of an answer, with the counts of a predicted text if the request has one."""
        return total_usage(usages, [stream.timings for stream in streams] if self._has_prediction else [])

    @property
    def is_verbose(self) -> bool:
        return self._options is not None

    def verbose(self, stream: pumice.AsyncChatStream) -> dict[str, Any]:
        """Return llama-server's ``__verbose``: the prompt as the model read it, and the settings."""
        if self._options is None:
            return {}
        sampling = {name: self._options[name] for name in (*SAMPLING, "max_tokens") if name in self._options}
        settings = {
            "prompt": self._service.spelt(stream.prompt_tokens),
            "generation_settings": generation_settings(self._service, sampling),
            "tokens_evaluated": len(stream.prompt_tokens),
            "tokens_predicted": stream.timings.generated_tokens,
        }
        return {"__verbose": settings}

    def logprobs(self, tokens: Sequence[Any] | None) -> dict[str, Any] | None:
        return {"content": [chat_logprob(token.token, token, self._spell) for token in tokens]} if tokens else None


def delta_parts(delta: pumice.ChatDelta, n_calls: int) -> dict[str, Any]:
    """Return the content of a part; ``n_calls`` tool calls came before it."""
    parts: dict[str, Any] = {}
    if delta.reasoning:
        parts["reasoning_content"] = delta.reasoning
    if delta.content:
        parts["content"] = delta.content
    if delta.tool_calls:
        calls = enumerate(delta.tool_calls, n_calls)
        parts["tool_calls"] = [{"index": index, **call.to_dict()} for index, call in calls]
    return parts


def total_usage(usages: Sequence[pumice.Usage], predicting: Sequence[pumice.Timings] = ()) -> dict[str, Any]:
    """Return the usage of several answers to one prompt, which counts once.

    ``predicting``: timings of answers with a predicted text.
    """
    first = usages[0]
    generated = sum(answer_usage.completion_tokens for answer_usage in usages)
    return usage(
        first.prompt_tokens,
        first.cached_tokens,
        generated,
        sum(answer_usage.reasoning_tokens for answer_usage in usages),
        first.audio_tokens,
        predicted(predicting) if predicting else {},
    )
