"""Answers of llama-server's protocol."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from pumice_server.answer_types import Timings, TokenLogprob, Usage, Vector


class ToolOffer(Struct, kw_only=True):
    """A tool that the server runs for clients."""

    display_name: str
    """Names of the MCP server and of the tool."""
    tool: str
    """Name of the tool, unique among all."""
    type: Literal["mcp"]
    """Origin of the tool."""
    server_label: str
    """Name of the MCP server."""
    definition: dict[str, Any]
    """The tool in the format of chat completions."""


class KeptStreamState(Struct, kw_only=True):
    """A stream that is kept for a conversation."""

    conversation_id: str
    is_done: bool
    """True if the stream has ended."""
    total_bytes: int
    """Bytes of the stream so far."""
    started_at: int
    """Time of the beginning in milliseconds since 1970."""
    completed_at: int
    """Time of the end in milliseconds since 1970; 0 while it is written."""


class CalledTool(Struct, kw_only=True):
    """Result of a call."""

    plain_text_response: str | None = None
    """Text that the tool returned, cut to what a model reads."""
    error: str | None = None
    """Error of the tool or its server."""


class RankedDocument(Struct, kw_only=True):
    """A document and its relevance."""

    index: int
    relevance_score: float | None = None
    """Relevance, in Jina's format."""
    score: float | None = None
    """Relevance, in TEI's format."""
    text: str | None = None
    """The document, with `return_text`."""


class Ranking(Struct, kw_only=True):
    """Documents by relevance, in Jina's format."""

    model: str
    object: Literal["list"]
    usage: Usage
    """Tokens of query and documents."""
    results: list[RankedDocument]
    """Documents, the most relevant first."""


class ModelEvent(Struct, kw_only=True):
    """Something that happens to a model."""

    event: str
    """`model_status`, `download_` and `progress`, `finished` or `failed`, `models_reload` or `model_remove`."""
    model: str
    """Name of the model; `*` for all models."""
    data: dict[str, Any] | None = None
    """Further values of the event, such as the `status` of a model."""


class NativeChunk(Struct, kw_only=True):
    """A part of the stream of llama-server's completion; `response_fields` selects fields."""

    index: int | None = None
    content: str | None = None
    tokens: list[int] | None = None
    """Ids of the tokens, with `return_tokens` or in a stream."""
    stop: bool | None = None
    """True at the end."""
    id_slot: int | None = None
    """Number of the slot that the request names, or -1."""
    tokens_predicted: int | None = None
    tokens_evaluated: int | None = None
    completion_probabilities: list[TokenLogprob] | None = None
    """Probabilities, if the request asks for them."""
    timings: Timings | None = None
    prompt_progress: dict[str, Any] | None = None
    """Progress of reading the prompt, with `return_progress`."""


class NativeCompletion(NativeChunk, kw_only=True):
    """llama-server's completion."""

    model: str | None = None
    generation_settings: dict[str, Any] | None = None
    """Options of the generation."""
    prompt: str | None = None
    has_new_line: bool | None = None
    """True if the text contains a newline."""
    truncated: bool | None = None
    """True if the context was full."""
    stop_type: str | None = None
    """`eos`, `word`, `limit` or `none`."""
    stopping_word: str | None = None
    """The stop string that ended the text."""
    tokens_cached: int | None = None
    """Tokens of prompt and text."""


NativeCompletions = NativeCompletion | list[NativeCompletion]


class NativeEmbedding(Struct, kw_only=True):
    """The vector of a text, in llama-server's format."""

    index: int
    embedding: list[Vector]
    """A list with the vector."""


class TokenPiece(Struct, kw_only=True):
    """A token and its text."""

    id: int
    piece: str | list[int]
    """Text of the token, or its bytes if they are not UTF-8."""


class TokenList(Struct, kw_only=True):
    """Tokens of a text."""

    tokens: list[int | TokenPiece]
    """Ids, with texts if the request asks for pieces."""


class TextOfTokens(Struct, kw_only=True):
    """Text of tokens."""

    content: str


class RenderedPrompt(Struct, kw_only=True):
    """The prompt of a chat."""

    prompt: str


class AdapterScale(Struct, kw_only=True):
    """A LoRA adapter."""

    id: int
    path: str
    scale: float


class SlotState(Struct, kw_only=True):
    """State of a slot."""

    id: int
    n_ctx: int
    speculative: bool
    """False."""
    is_processing: bool
    """True if a sequence runs in the slot."""


class SlotResult(Struct, kw_only=True):
    """Result of an action on a slot."""

    id_slot: int
    filename: str | None = None
    n_saved: int | None = None
    n_cached: int | None = None
    """Tokens whose cache is on disk, or was found in memory or on disk."""
    n_written: int | None = None
    """Bytes of the written file, without the cache's."""
    n_restored: int | None = None
    n_read: int | None = None
    """Bytes of the read file, without the cache's."""
    n_erased: int | None = None
    timings: dict[str, float] | None = None
