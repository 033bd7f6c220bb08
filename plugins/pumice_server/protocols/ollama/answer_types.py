"""Answers of Ollama's protocol."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from pumice_server.answer_types import ListedModel, OllamaDetails, TokenLogprob, Vector


class OllamaFunctionCall(Struct, kw_only=True):
    """The function of a tool call, in Ollama's format."""

    name: str
    arguments: dict[str, Any] | str | None = None
    """Arguments, as an object."""


class OllamaToolCall(Struct, kw_only=True):
    """A call of a tool, in Ollama's format."""

    function: OllamaFunctionCall


class OllamaPart(Struct, kw_only=True):
    """An answer, or a line of its stream, in Ollama's format; the durations are those of the last line."""

    model: str
    created_at: str
    done: bool
    """True in the last part."""
    logprobs: list[TokenLogprob] | None = None
    """Log-probabilities, if the request asks for them."""
    done_reason: str | None = None
    """`stop`, `length`, `load` or `unload`."""
    total_duration: int | None = None
    """Nanoseconds of the request."""
    load_duration: int | None = None
    """0."""
    prompt_eval_count: int | None = None
    prompt_eval_duration: int | None = None
    """Nanoseconds for the prompt."""
    eval_count: int | None = None
    eval_duration: int | None = None
    """Nanoseconds of generation."""


class OllamaAnswerMessage(Struct, kw_only=True):
    """The message of an answer, in Ollama's format."""

    role: Literal["assistant"]
    content: str
    thinking: str | None = None
    tool_calls: list[OllamaToolCall] | None = None


class OllamaChat(OllamaPart, kw_only=True):
    """Ollama's answer of a chat, or a line of its stream."""

    message: OllamaAnswerMessage
    """The message, or its next part."""


class OllamaGeneration(OllamaPart, kw_only=True):
    """Ollama's answer of a prompt, or a line of its stream."""

    response: str
    """The text, or its next part."""
    thinking: str | None = None


class OllamaEmbeddings(Struct, kw_only=True):
    """Vectors of texts, in Ollama's format."""

    model: str
    embeddings: list[Vector]
    total_duration: int
    """Nanoseconds of the request."""
    load_duration: int
    """0."""
    prompt_eval_count: int
    """Tokens of the texts."""


class OllamaEmbedding(Struct, kw_only=True):
    """The vector of a text, in Ollama's older format."""

    embedding: Vector


class OllamaModels(Struct, kw_only=True):
    """Models, in Ollama's format."""

    models: list[ListedModel]


class OllamaStatus(Struct, kw_only=True):
    """A step of a change of models, in Ollama's format."""

    status: str
    """`success` at the end."""
    digest: str | None = None
    """File that is being fetched."""
    total: int | None = None
    """Bytes of the file."""
    completed: int | None = None
    """Bytes of the file so far."""


class OllamaVersion(Struct, kw_only=True):
    """The version of Ollama whose interface is served."""

    version: str


class OllamaModel(Struct, kw_only=True):
    """A model in detail, in Ollama's format."""

    modelfile: str
    """Modelfile that makes the same name with `POST /api/create`; empty for a model without defaults of its own."""
    parameters: str
    """Parameters of the name: a line with a name and a value for each."""
    system: str | None = None
    """System message of the name."""
    messages: list[dict[str, Any]] | None = None
    """Messages before those of each chat."""
    template: str
    details: OllamaDetails
    """Format, family, size and quantization of the model."""
    model_info: dict[str, Any]
    """Metadata of the file, without lists."""
    capabilities: list[str]
    """`completion`, `embedding`, `tools`, `insert`, `thinking`."""
    modified_at: str
    """Time of the last change."""
