"""Parts of the answers of OpenAI's chat completions."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import UNSET

import pumice
from pumice_server.answer_types import Usage
from pumice_server.interface import SAMPLING, Service, generation_settings, token_logprob, usage
from pumice_server.protocols.openai.answer_types import (
    ChatChoice,
    ChatCompletion,
    ChatCompletionChunk,
    ChatLogprobs,
    ChunkChoice,
    MessageDelta,
    ToolCallDelta,
)


class PartBuilder:
    """Builds the parts of an answer with their common fields; with ``options``, its end has ``__verbose``."""

    def __init__(
        self, service: Service, options: Mapping[str, Any] | None = None, has_prediction: bool = False
    ) -> None:
        self._service, self._options, self._has_prediction = service, options, has_prediction
        self._spell = service.token_bytes
        self.id = f"chatcmpl-{secrets.token_urlsafe(18)}"
        self._head: dict[str, Any] = {
            "id": self.id,
            "created": int(time.time()),  # noqa: TID251 (shown)
            "model": service.name,
            "system_fingerprint": service.fingerprint,
        }

    def whole(self, choices: list[ChatChoice], **others: Any) -> ChatCompletion:
        return ChatCompletion(object="chat.completion", choices=choices, **self._head, **others)

    def chunk(self, choices: list[ChunkChoice], **others: Any) -> ChatCompletionChunk:
        return ChatCompletionChunk(object="chat.completion.chunk", choices=choices, **self._head, **others)

    def usage(self, usages: Sequence[pumice.Usage], streams: Sequence[pumice.AsyncChatStream]) -> Usage:
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
        return {"verbose": settings}

    def logprobs(self, tokens: Sequence[Any] | None) -> ChatLogprobs | None:
        if not tokens:
            return None
        return ChatLogprobs(content=[token_logprob(token.token, token, self._spell) for token in tokens])


def delta_of(delta: pumice.ChatDelta, n_calls: int) -> MessageDelta | None:
    """Return the content of a part, if it has any; ``n_calls`` tool calls came before it."""
    if not (delta.reasoning or delta.content or delta.tool_calls):
        return None
    calls = [ToolCallDelta(index=index, **call.to_dict()) for index, call in enumerate(delta.tool_calls, n_calls)]
    return MessageDelta(
        reasoning_content=delta.reasoning or None, content=delta.content or UNSET, tool_calls=calls or None
    )


def total_usage(usages: Sequence[pumice.Usage], predicting: Sequence[pumice.Timings] = ()) -> Usage:
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
        predicting,
    )
