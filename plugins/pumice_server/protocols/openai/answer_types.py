"""Answers of OpenAI's protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType, field

from pumice_server.answer_types import (
    CompletionDetails,
    ErrorDetail,
    ListedModel,
    PromptDetails,
    Timings,
    TokenLogprob,
    Usage,
    Vector,
)


class FunctionCall(Struct, kw_only=True):
    """The function of a tool call."""

    name: str
    arguments: str | dict[str, Any] | None = None
    """Arguments: an object as JSON text."""


class ToolCall(Struct, kw_only=True):
    """A call of a tool."""

    id: str | None = None
    """Id of the call, which the message with its result repeats as `tool_call_id`."""
    type: str | None = None
    """`function`."""
    function: FunctionCall


class Controlled(Struct, kw_only=True):
    """Whether an answer was changed."""

    success: bool
    """True if the answer was changed."""
    message: str | None = None
    """Reason why not."""


class ChatLogprobs(Struct, kw_only=True):
    """Log-probabilities of an answer."""

    content: list[TokenLogprob]
    """An entry for each token."""


class McpCall(Struct, kw_only=True):
    """A call of an MCP server's tool that the server has run."""

    id: str
    type: Literal["mcp_call"]
    server_label: str
    """Name of the MCP server."""
    name: str
    arguments: str
    """Arguments as JSON text."""
    status: str
    """`completed` or `failed`."""
    output: str | None
    """Result of the tool, cut to what the model reads."""
    error: dict[str, Any] | None
    """Error of the tool, as the model reads it."""
    approval_request_id: str | None
    index: int | None = None
    """Number of the call (streams)."""


class AnswerMessage(Struct, kw_only=True):
    """The message of an answer."""

    role: Literal["assistant"]
    content: str | None
    reasoning_content: str | None = None
    """Reasoning before the answer."""
    tool_calls: list[ToolCall] | None = None
    mcp_calls: list[McpCall] | None = None
    """Calls of MCP servers' tools that the server has run for this answer."""


class ChatChoice(Struct, kw_only=True):
    """One answer."""

    index: int
    message: AnswerMessage
    finish_reason: str
    """`stop`, `length` or `tool_calls`."""
    logprobs: ChatLogprobs | None
    """Log-probabilities, if the request asks for them."""


class AnswerHead(Struct, kw_only=True):
    """Fields at the beginning of completions."""

    id: str
    object: str
    created: int
    """Time in seconds since 1970."""
    model: str
    system_fingerprint: str


class ChatCompletion(AnswerHead, kw_only=True):
    """A chat completion."""

    choices: list[ChatChoice]
    usage: Usage
    timings: Timings
    verbose: dict[str, Any] | None = field(default=None, name="__verbose")
    """Prompt and settings, if the request is `verbose`."""


class ToolCallDelta(ToolCall, kw_only=True):
    """A part of a tool call."""

    index: int


class MessageDelta(Struct, kw_only=True):
    """A part of a message."""

    role: str | None = None
    """Author, in the first part."""
    content: str | UnsetType | None = UNSET
    """Further text; null in the first part."""
    reasoning_content: str | None = None
    """Further reasoning."""
    tool_calls: list[ToolCallDelta] | None = None
    """Further tool calls."""
    mcp_calls: list[McpCall] | None = None
    """Further calls of MCP servers' tools that the server has run."""


class ChunkChoice(Struct, kw_only=True):
    """A part of one answer."""

    index: int
    delta: MessageDelta
    finish_reason: str | None
    """`stop`, `length` or `tool_calls` in the last part."""
    logprobs: ChatLogprobs | None
    """Log-probabilities of the tokens of the part."""


class ChatCompletionChunk(AnswerHead, kw_only=True):
    """A part of a chat completion's stream, which ends with `[DONE]`."""

    choices: list[ChunkChoice]
    """Parts of answers; empty in the part with the usage."""
    usage: Usage | None = None
    """Tokens of the request, in the last part."""
    timings: Timings | None = None
    """Measurements, in the last part."""
    prompt_progress: dict[str, Any] | None = None
    """Progress of reading the prompt, with `return_progress`."""
    verbose: dict[str, Any] | None = field(default=None, name="__verbose")
    """Prompt and settings, if the request is `verbose`."""


class CompletionChoice(Struct, kw_only=True):
    """One completion, or a part of one."""

    index: int
    text: str
    logprobs: dict[str, Any] | None
    """Log-probabilities, if the request asks for them."""
    finish_reason: str | None
    """`stop` or `length`; null before the last part."""
    prompt_logprobs: Sequence[Mapping[str, Any] | None] | None = None
    """For each position of the prompt the log-probabilities of tokens by id."""


class TextCompletion(AnswerHead, kw_only=True):
    """Completions of prompts, or a part of their stream, which ends with `[DONE]`."""

    choices: list[CompletionChoice]
    usage: Usage | None = None
    timings: Timings | None = None
    prompt_progress: dict[str, Any] | None = None
    """Progress of reading the prompt, with `return_progress`."""


class OutputContent(Struct, kw_only=True):
    """A part of an item's content."""

    type: str
    """`output_text` or `reasoning_text`."""
    text: str
    annotations: list[Any] | None = None
    """Empty."""
    logprobs: list[Any] | None = None
    """Empty."""


class OutputItem(Struct, kw_only=True):
    """An item of a response."""

    role: str | None = None
    call_id: str | None = None
    """Id of a call, which its output repeats."""
    name: str | None = None
    arguments: str | None = None
    """Arguments of a call, as JSON text."""
    server_label: str | None = None
    """Name of an MCP server."""
    error: str | dict[str, Any] | None = None
    """Error of an MCP server or of its tool."""
    approval_request_id: str | None = None
    """Id of the request for approval of an MCP server's call."""
    id: str
    type: str
    """`message`, `reasoning`, `function_call`, `mcp_list_tools`, `mcp_call` or `mcp_approval_request`."""
    status: str | None = None
    """`in_progress`, `completed`, `incomplete` or `failed`."""
    content: list[OutputContent] | None = None
    """Content of a message or of reasoning."""
    summary: list[Any] | None = None
    """Empty."""
    tools: list[dict[str, Any]] | None = None
    """Tools of an MCP server: `name`, `description`, `input_schema`."""
    output: str | None = None
    """Result of an MCP server's tool, cut to what the model reads."""


class InputDetails(Struct, kw_only=True):
    """Tokens of what was read for a transcription."""

    text_tokens: int
    audio_tokens: int


class TranscriptionUsage(Struct, kw_only=True):
    """Cost of a transcription: tokens, or its duration with `verbose_json`."""

    type: str
    """`tokens` or `duration`."""
    input_tokens: int | None = None
    input_token_details: InputDetails | None = None
    """Tokens of the prompt in detail."""
    output_tokens: int | None = None
    total_tokens: int | None = None
    """Tokens of prompt and text."""
    seconds: float | None = None


class TranscriptionSegment(Struct, kw_only=True):
    """A segment of Whisper's, or a piece of a sound that the model heard alone."""

    id: int
    """Number of the piece, from 0 on."""
    seek: int
    """Start of the piece, or of the 30 seconds with the segment, in hundredths of a second."""
    start: float
    """Second where the piece begins."""
    end: float
    """Second where it ends."""
    text: str
    tokens: list[int]
    """Token ids of the text."""
    temperature: float
    avg_logprob: float | None = None
    """Mean log-probability of the tokens of the 30 seconds (Whisper)."""
    compression_ratio: float | None = None
    """Compression of their text; repetitions make it large (Whisper)."""
    no_speech_prob: float | None = None
    """Probability that nothing is said in them (Whisper)."""


class TranscriptionWord(Struct, kw_only=True):
    """A word of Whisper's."""

    word: str
    start: float
    """Second where it begins."""
    end: float
    """Second where it ends."""


class Transcription(Struct, kw_only=True):
    """The text that is spoken in a sound; that text alone with `text`, subtitles with `srt` and `vtt`."""

    text: str
    usage: TranscriptionUsage
    task: str | None = None
    """`transcribe` or `translate` (verbose_json)."""
    language: str | None = None
    """Language of the request, the one that Whisper detected, or `unknown` (verbose_json)."""
    duration: float | None = None
    """Seconds of the sound (verbose_json)."""
    segments: list[TranscriptionSegment] | None = None
    """Segments, or pieces of up to 30 seconds (verbose_json)."""
    words: list[TranscriptionWord] | None = None
    """Words, if `timestamp_granularities` has `word` (verbose_json)."""


class TranscriptionEvent(Struct, kw_only=True):
    """A part of a transcription's stream."""

    type: str
    """`transcript.text.delta`, or `transcript.text.done` in the last part."""
    delta: str | None = None
    text: str | None = None
    """Whole text, in the last part."""
    usage: TranscriptionUsage | None = None
    """Cost, in the last part."""


class SpeechUsage(Struct, kw_only=True):
    """Tokens of a speech."""

    input_tokens: int
    output_tokens: int
    total_tokens: int


class SpeechEvent(Struct, kw_only=True):
    """A part of a speech's stream."""

    type: str
    """`speech.audio.delta`, or `speech.audio.done` in the last part."""
    audio: str | None = None
    """Bytes of the file in base64."""
    usage: SpeechUsage | None = None
    """Cost, in the last part."""


class ResponseUsage(Struct, kw_only=True):
    """Tokens of a response."""

    input_tokens: int
    input_tokens_details: PromptDetails
    """Tokens of the prompt in detail."""
    output_tokens: int
    output_tokens_details: CompletionDetails
    """Generated tokens in detail."""
    total_tokens: int
    """Tokens of prompt and answer."""


class ResponseObject(Struct, kw_only=True):
    """OpenAI's response. Fields of the request are repeated."""

    id: str
    object: Literal["response"]
    created_at: int
    """Time in seconds since 1970."""
    model: str
    status: str
    """`in_progress`, `completed` or `incomplete`."""
    output: list[OutputItem]
    usage: ResponseUsage | None
    completed_at: int | None = None
    """Time of the end in seconds since 1970."""
    error: ErrorDetail | None
    """Null."""
    incomplete_details: dict[str, str] | None
    """`{"reason": "max_output_tokens"}` if the response is incomplete."""
    parallel_tool_calls: bool | None
    """True if several tools may be called at once."""
    tool_choice: str | dict[str, Any] | None
    tools: list[dict[str, Any]] | None
    truncation: str | None
    """`disabled`."""
    store: bool | None
    """True if the response is stored."""
    instructions: str | None
    max_output_tokens: int | None
    metadata: dict[str, Any] | None
    previous_response_id: str | None
    temperature: float | None
    top_p: float | None
    text: dict[str, Any] | None
    user: str | None


class ResponseEvent(Struct, kw_only=True):
    """An event of a response's stream."""

    type: str
    """`response.created`, `response.output_text.delta`, `response.completed` and further types."""
    sequence_number: int
    response: ResponseObject | None = None
    """The response, at its beginning and end."""
    output_index: int | None = None
    content_index: int | None = None
    """Number of the part of the item's content."""
    item_id: str | None = None
    item: OutputItem | None = None
    """An item that is added or done."""
    part: OutputContent | None = None
    """A part of the content that is added or done."""
    delta: str | None = None
    """Further text or arguments."""
    text: str | None = None
    """Whole text of a part that is done."""
    name: str | None = None
    arguments: str | None = None
    """Arguments of a call that is done, as JSON text."""
    logprobs: list[Any] | None = None
    """Empty."""
    timings: Timings | None = None
    """Measurements, in the last event."""
    prompt_progress: dict[str, Any] | None = None
    """Progress of reading the prompt, with `return_progress`."""
    code: str | None = None
    message: str | None = None
    param: str | UnsetType | None = UNSET
    """Null."""


class Embedding(Struct, kw_only=True):
    """The vector of a text."""

    object: Literal["embedding"]
    index: int
    embedding: Vector | str
    """Components, or base64 of float32 values."""


class EmbeddingList(Struct, kw_only=True):
    """Vectors of texts."""

    object: Literal["list"]
    model: str
    data: list[Embedding]
    usage: Usage
    """Tokens of the texts."""


class ModelInfo(Struct, kw_only=True):
    """A model."""

    id: str
    object: Literal["model"]
    type: str
    """`model` (Anthropic)."""
    display_name: str
    """Name of the model (Anthropic)."""
    created: int
    """Time in seconds since 1970."""
    created_at: str
    """Time (Anthropic)."""
    owned_by: str
    """`pumice`."""
    parent: str | None
    """Model of a LoRA adapter."""
    aliases: list[str] | None = None
    """Further names of the model."""
    tags: list[str] | None = None
    status: dict[str, Any] | None = None
    """State of the model: `loaded`, `loading`, `unloaded`."""
    meta: dict[str, Any] | None = None
    """Architecture, vocabulary, context, parameters and bytes."""


class ModelList(Struct, kw_only=True):
    """The models of the server."""

    object: Literal["list"]
    data: list[ModelInfo]
    """Models, in OpenAI's format."""
    models: list[ListedModel]
    """Models, in Ollama's format."""
