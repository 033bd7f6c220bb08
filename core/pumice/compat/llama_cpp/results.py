"""Results of llama-cpp-python, which are dictionaries by the schema of OpenAI's interface."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NotRequired, TypedDict

from pumice import Logprobs, ToolCall
from pumice.tokenizers import Tokenizer

FinishReason = Literal["stop", "length", "tool_calls"]


class CompletionLogprobs(TypedDict):
    """Log-probabilities of the tokens of a text."""

    tokens: list[str]
    text_offset: list[int]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]


class CompletionChoice(TypedDict):
    """A completion, or a part of it."""

    text: str
    index: int
    logprobs: CompletionLogprobs | None
    finish_reason: FinishReason | None


class CompletionUsage(TypedDict):
    """Numbers of tokens."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class CreateCompletionResponse(TypedDict):
    """The result of ``Llama.create_completion``, or a part of its stream, which has no ``usage``."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: NotRequired[CompletionUsage]


class FunctionCall(TypedDict):
    """A call of a function: its arguments are JSON."""

    name: str
    arguments: str


class MessageToolCall(TypedDict):
    """A tool call of a message; its parts in a stream have an index."""

    id: str
    type: Literal["function"]
    function: FunctionCall
    index: NotRequired[int]


class ChatMessage(TypedDict, total=False):
    """A message of the assistant, or a part of it in a stream."""

    role: str | None
    content: str | None
    function_call: FunctionCall | None
    tool_calls: list[MessageToolCall] | None


class TopLogprob(TypedDict):
    """A token that could have come."""

    token: str
    logprob: float
    bytes: list[int] | None


class TokenLogprob(TopLogprob):
    """A token of an answer."""

    top_logprobs: list[TopLogprob]


class ChatLogprobs(TypedDict):
    """Log-probabilities of the tokens of an answer."""

    content: list[TokenLogprob]
    refusal: None


class ChatChoice(TypedDict):
    """An answer."""

    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason | None


class ChatChunkChoice(TypedDict):
    """A part of an answer."""

    index: int
    delta: ChatMessage
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason | None


class CreateChatCompletionResponse(TypedDict):
    """The result of ``Llama.create_chat_completion``."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: CompletionUsage


class CreateChatCompletionStreamResponse(TypedDict):
    """A part of the stream of ``Llama.create_chat_completion``."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChatChunkChoice]


class Embedding(TypedDict):
    """The embedding of a text; without pooling one of each token."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | list[list[float]]


class EmbeddingUsage(TypedDict):
    """Numbers of tokens."""

    prompt_tokens: int
    total_tokens: int


class CreateEmbeddingResponse(TypedDict):
    """The result of ``Llama.create_embedding``."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: EmbeddingUsage


def finish_reason(reason: str | None) -> FinishReason | None:
    """Return OpenAI's name of why a generation ended: whatever cuts a text is ``length``."""
    if reason is None:
        return None
    return "stop" if reason == "stop" else "tool_calls" if reason == "tool_calls" else "length"


def usage(n_prompt: int, n_generated: int) -> CompletionUsage:
    """Return the numbers of tokens."""
    return {"prompt_tokens": n_prompt, "completion_tokens": n_generated, "total_tokens": n_prompt + n_generated}


def spelled(tokenizer: Tokenizer, token: int) -> str:
    """Return the text of a token, without bytes that are part of a character."""
    return tokenizer.token_bytes(token).decode("utf-8", errors="ignore")


def completion_logprobs(
    tokenizer: Tokenizer, tokens: Sequence[int], logprobs: Sequence[Logprobs | None], offset: int
) -> CompletionLogprobs:
    """Return the log-probabilities of tokens, the first of which begins at ``offset`` characters."""
    texts = [spelled(tokenizer, token) for token in tokens]
    offsets = [offset]
    for text in texts[:-1]:
        offsets.append(offsets[-1] + len(text))
    tops: list[dict[str, float] | None] = []
    for text, entry in zip(texts, logprobs, strict=True):
        tops.append(None if entry is None else {**_by_text(tokenizer, entry), text: entry.logprob})
    values = [entry.logprob if entry else None for entry in logprobs]
    return {"tokens": texts, "text_offset": offsets, "token_logprobs": values, "top_logprobs": tops}


def chat_logprobs(tokenizer: Tokenizer, entries: Sequence[tuple[int, Logprobs]]) -> ChatLogprobs:
    """Return the log-probabilities of an answer's tokens."""
    content: list[TokenLogprob] = []
    for token, entry in entries:
        text = spelled(tokenizer, token)
        likely = {**_by_text(tokenizer, entry), text: entry.logprob}
        tops: list[TopLogprob] = [{"token": top, "logprob": value, "bytes": None} for top, value in likely.items()]
        content.append({"token": text, "logprob": entry.logprob, "bytes": None, "top_logprobs": tops})
    return {"content": content, "refusal": None}


def _by_text(tokenizer: Tokenizer, entry: Logprobs) -> dict[str, float]:
    return {spelled(tokenizer, token): value for token, value in entry.top}


def tool_calls(calls: Sequence[ToolCall]) -> list[MessageToolCall]:
    """Return the calls of an answer."""
    return [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": json.dumps(dict(call.arguments), ensure_ascii=False)},
        }
        for call in calls
    ]


@dataclass(frozen=True)
class Envelope:
    """What all parts of one result have in common."""

    id: str
    created: int
    model: str

    @classmethod
    def new(cls, model: str, prefix: str = "cmpl-") -> Envelope:
        """Return that of a new result."""
        return cls(f"{prefix}{uuid.uuid4()}", int(time.time()), model)  # noqa: TID251 (shown)

    def text(
        self, text: str, logprobs: CompletionLogprobs | None, reason: FinishReason | None
    ) -> CreateCompletionResponse:
        """Return a completion, or a part of it."""
        choice: CompletionChoice = {"text": text, "index": 0, "logprobs": logprobs, "finish_reason": reason}
        return {
            "id": self.id,
            "object": "text_completion",
            "created": self.created,
            "model": self.model,
            "choices": [choice],
        }

    def delta(
        self, delta: ChatMessage, logprobs: ChatLogprobs | None = None, reason: FinishReason | None = None
    ) -> CreateChatCompletionStreamResponse:
        """Return a part of an answer."""
        choice: ChatChunkChoice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
        return {
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self.created,
            "model": self.model,
            "choices": [choice],
        }


def described(metadata: Mapping[str, object]) -> dict[str, str]:
    """Return the metadata of a file as llama.cpp spells them; lists are left out."""
    texts = {}
    for key, value in metadata.items():
        if isinstance(value, bool):
            texts[key] = str(value).lower()
        elif isinstance(value, float):
            texts[key] = f"{value:.6f}"
        elif isinstance(value, (int, str)):
            texts[key] = str(value)
    return texts
