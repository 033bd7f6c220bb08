"""Fields of the answers of endpoints, as ``/openapi.json`` describes them.

Answers are built as dictionaries. An endpoint names the class of its answer, and the one of a stream's parts, in the
annotation of its result. ``tests/plugins/server/test_answer_types.py`` compares the classes with answers.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct, field

from pumice_server.message_types import AnswerBlock, CallItem, OllamaToolCall, ToolCall

# --- shared parts


class ErrorDetail(Struct, kw_only=True):
    """Description of an error."""

    message: str
    """Cause and remedy."""
    type: str
    """Kind of the error."""
    code: int | str | None = None
    """HTTP status (OpenAI and llama-server)."""
    param: str | None = None
    """Null."""
    n_prompt_tokens: int | None = None
    """Tokens of a prompt that exceeds the context."""
    n_ctx: int | None = None
    """Context in tokens, if a prompt exceeds it."""


class Error(Struct, kw_only=True):
    """An error, in the form of the protocol."""

    error: ErrorDetail | str
    """The error; a text in Ollama's form."""
    type: str | None = None
    """`error` (Anthropic)."""
    request_id: str | None = None
    """Id of the request (Anthropic)."""


class Timings(Struct, kw_only=True):
    """Measurements of a generation, as llama-server reports them."""

    queue_ms: float
    """Milliseconds in the queue, before the prompt was read."""
    cache_n: int
    """Tokens of the prompt that were cached."""
    prompt_n: int
    """Tokens of the prompt that were computed."""
    prompt_ms: float
    """Milliseconds for the prompt."""
    prompt_per_token_ms: float
    """Milliseconds per token of the prompt."""
    prompt_per_second: float | None
    """Tokens of the prompt per second."""
    predicted_n: int
    """Generated tokens."""
    predicted_ms: float
    """Milliseconds of generation."""
    predicted_per_token_ms: float
    """Milliseconds per generated token."""
    predicted_per_second: float | None
    """Generated tokens per second."""
    draft_n: int | None = None
    """Drafted tokens, if any."""
    draft_n_accepted: int | None = None
    """Drafted tokens that were accepted."""


class CandidateLogprob(Struct, kw_only=True):
    """A token and its log-probability."""

    id: int
    """Id of the token."""
    token: str
    """Text of the token."""
    bytes: list[int]
    """UTF-8 bytes of the token."""
    logprob: float | None = None
    """Natural logarithm of the probability."""
    prob: float | None = None
    """Probability, with `post_sampling_probs`."""


class TokenLogprob(CandidateLogprob, kw_only=True):
    """A generated token and the most probable ones at its position."""

    top_logprobs: list[CandidateLogprob] | None = None
    """The most probable tokens."""
    top_probs: list[CandidateLogprob] | None = None
    """The most probable tokens after the sampler chain, with `post_sampling_probs`."""


class TokenCount(Struct, kw_only=True):
    """Number of tokens of a prompt."""

    input_tokens: int
    """Tokens of the prompt."""
    object: str | None = None
    """`response.input_tokens` (OpenAI)."""


class Success(Struct, kw_only=True):
    """The action succeeded."""

    success: bool
    """True."""


class Controlled(Struct, kw_only=True):
    """Whether an answer was changed."""

    success: bool
    """True if the answer takes the change."""
    message: str | None = None
    """Reason why not."""


class Status(Struct, kw_only=True):
    """State of the server."""

    status: str
    """`ok`."""


# --- OpenAI


class PromptDetails(Struct, kw_only=True):
    """Tokens of a prompt in detail."""

    cached_tokens: int
    """Tokens that were cached."""
    cache_write_tokens: int | None = None
    """0 (responses)."""
    audio_tokens: int | None = None
    """Tokens of sounds, if there are any."""


class CompletionDetails(Struct, kw_only=True):
    """Tokens of an answer in detail."""

    reasoning_tokens: int
    """Tokens of reasoning."""
    accepted_prediction_tokens: int | None = None
    """Drafted tokens that the model accepted, if the request has a `prediction`."""
    rejected_prediction_tokens: int | None = None
    """Drafted tokens that the model rejected, if the request has a `prediction`."""


class Usage(Struct, kw_only=True):
    """Tokens of a request."""

    prompt_tokens: int
    """Tokens of the prompt."""
    total_tokens: int
    """Tokens of prompt and answer."""
    completion_tokens: int | None = None
    """Generated tokens."""
    prompt_tokens_details: PromptDetails | None = None
    """Tokens of the prompt in detail."""
    completion_tokens_details: CompletionDetails | None = None
    """Generated tokens in detail."""


class ChatLogprobs(Struct, kw_only=True):
    """Log-probabilities of an answer."""

    content: list[TokenLogprob]
    """An entry for each token."""


class McpCall(Struct, kw_only=True):
    """A call of an MCP server's tool that the server has run."""

    id: str
    """Id of the call."""
    type: Literal["mcp_call"]
    """Type of the object."""
    server_label: str
    """Name of the MCP server."""
    name: str
    """Name of the tool."""
    arguments: str
    """Arguments as JSON text."""
    status: str
    """`completed` or `failed`."""
    output: str | None
    """Result of the tool, cut to what the model reads."""
    error: dict[str, Any] | None
    """Error of the tool, as the model reads it."""
    approval_request_id: str | None
    """Id of the request for approval that preceded the call."""
    index: int | None = None
    """Number of the call (streams)."""


class AnswerMessage(Struct, kw_only=True):
    """The message of an answer."""

    role: Literal["assistant"]
    """Author."""
    content: str | None
    """Text of the answer."""
    reasoning_content: str | None = None
    """Reasoning before the answer."""
    tool_calls: list[ToolCall] | None = None
    """Tool calls."""
    mcp_calls: list[McpCall] | None = None
    """Calls of MCP servers' tools that the server has run for this answer."""


class ChatChoice(Struct, kw_only=True):
    """One answer."""

    index: int
    """Number of the answer."""
    message: AnswerMessage
    """The message."""
    finish_reason: str
    """`stop`, `length` or `tool_calls`."""
    logprobs: ChatLogprobs | None
    """Log-probabilities, if the request asks for them."""


class AnswerHead(Struct, kw_only=True):
    """Fields at the beginning of completions."""

    id: str
    """Id of the completion."""
    object: str
    """Type of the object."""
    created: int
    """Time in seconds since 1970."""
    model: str
    """Name of the model."""
    system_fingerprint: str
    """Program and version."""


class ChatCompletion(AnswerHead, kw_only=True):
    """A chat completion."""

    choices: list[ChatChoice]
    """The answers."""
    usage: Usage
    """Tokens of the request."""
    timings: Timings
    """Measurements."""
    verbose: dict[str, Any] | None = field(default=None, name="__verbose")
    """Prompt and settings, if the request is `verbose`."""


class ToolCallDelta(ToolCall, kw_only=True):
    """A part of a tool call."""

    index: int
    """Number of the call in the message."""


class MessageDelta(Struct, kw_only=True):
    """A part of a message."""

    role: str | None = None
    """Author, in the first part."""
    content: str | None = None
    """Further text."""
    reasoning_content: str | None = None
    """Further reasoning."""
    tool_calls: list[ToolCallDelta] | None = None
    """Further tool calls."""
    mcp_calls: list[McpCall] | None = None
    """Further calls of MCP servers' tools that the server has run."""


class ChunkChoice(Struct, kw_only=True):
    """A part of one answer."""

    index: int
    """Number of the answer."""
    delta: MessageDelta
    """The part."""
    finish_reason: str | None
    """`stop`, `length` or `tool_calls` in the last part."""
    logprobs: ChatLogprobs | None = None
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
    """Number of the completion."""
    text: str
    """Text."""
    logprobs: dict[str, Any] | None
    """Log-probabilities, if the request asks for them."""
    finish_reason: str | None
    """`stop` or `length`; null before the last part."""
    prompt_logprobs: list[dict[str, Any] | None] | None = None
    """For each position of the prompt the log-probabilities of tokens by id."""


class TextCompletion(AnswerHead, kw_only=True):
    """Completions of prompts, or a part of their stream, which ends with `[DONE]`."""

    choices: list[CompletionChoice]
    """The completions."""
    usage: Usage | None = None
    """Tokens of the request."""
    timings: Timings | None = None
    """Measurements."""
    prompt_progress: dict[str, Any] | None = None
    """Progress of reading the prompt, with `return_progress`."""


class OutputContent(Struct, kw_only=True):
    """A part of an item's content."""

    type: str
    """`output_text` or `reasoning_text`."""
    text: str
    """Text."""
    annotations: list[Any] | None = None
    """Empty."""
    logprobs: list[Any] | None = None
    """Empty."""


class OutputItem(CallItem, kw_only=True):
    """An item of a response."""

    id: str
    """Id of the item."""
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


class OfferedTool(Struct, kw_only=True):
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
    """The tool as chat completions take it."""


class KeptStreamState(Struct, kw_only=True):
    """A stream that is kept for a conversation."""

    conversation_id: str
    """Id of the conversation."""
    is_done: bool
    """True if the stream has ended."""
    total_bytes: int
    """Bytes of the stream so far."""
    started_at: int
    """Time of the beginning in milliseconds since 1970."""
    completed_at: int
    """Time of the end in milliseconds since 1970; 0 while it is written."""


class ExtractedText(Struct, kw_only=True):
    """The text of a file."""

    text: str
    """Text, with a form feed between pages."""
    n_pages: int
    """Number of pages."""


class CalledTool(Struct, kw_only=True):
    """Result of a call."""

    plain_text_response: str | None = None
    """Text that the tool returned, cut to what a model reads."""
    error: str | None = None
    """Error of the tool or its server."""


class InputDetails(Struct, kw_only=True):
    """Tokens of what was read for a transcription."""

    text_tokens: int
    """Tokens of text."""
    audio_tokens: int
    """Tokens of the sound."""


class TranscriptionUsage(Struct, kw_only=True):
    """Cost of a transcription: tokens, or its duration with `verbose_json`."""

    type: str
    """`tokens` or `duration`."""
    input_tokens: int | None = None
    """Tokens of the prompt."""
    input_token_details: InputDetails | None = None
    """Tokens of the prompt in detail."""
    output_tokens: int | None = None
    """Generated tokens."""
    total_tokens: int | None = None
    """Tokens of prompt and text."""
    seconds: float | None = None
    """Duration of the sound."""


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
    """Text of the piece."""
    tokens: list[int]
    """Token ids of the text."""
    temperature: float
    """Temperature of the sampler."""
    avg_logprob: float | None = None
    """Mean log-probability of the tokens of the 30 seconds (Whisper)."""
    compression_ratio: float | None = None
    """Compression of their text; repetitions make it large (Whisper)."""
    no_speech_prob: float | None = None
    """Probability that nothing is said in them (Whisper)."""


class Transcription(Struct, kw_only=True):
    """The text that is spoken in a sound; that text alone with `text`, subtitles with `srt` and `vtt`."""

    text: str
    """Text."""
    usage: TranscriptionUsage
    """Cost."""
    task: str | None = None
    """`transcribe` or `translate` (verbose_json)."""
    language: str | None = None
    """Language of the request, the one that Whisper detected, or `unknown` (verbose_json)."""
    duration: float | None = None
    """Seconds of the sound (verbose_json)."""
    segments: list[TranscriptionSegment] | None = None
    """Segments, or pieces of up to 30 seconds (verbose_json)."""


class TranscriptionEvent(Struct, kw_only=True):
    """A part of a transcription's stream."""

    type: str
    """`transcript.text.delta`, or `transcript.text.done` in the last part."""
    delta: str | None = None
    """Text of the part."""
    text: str | None = None
    """Whole text, in the last part."""
    usage: TranscriptionUsage | None = None
    """Cost, in the last part."""


class SpeechUsage(Struct, kw_only=True):
    """Tokens of a speech."""

    input_tokens: int
    """Tokens of the prompts."""
    output_tokens: int
    """Generated tokens."""
    total_tokens: int
    """Tokens of both."""


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
    """Tokens of the prompt."""
    input_tokens_details: PromptDetails
    """Tokens of the prompt in detail."""
    output_tokens: int
    """Generated tokens."""
    output_tokens_details: CompletionDetails
    """Generated tokens in detail."""
    total_tokens: int
    """Tokens of prompt and answer."""


class ResponseObject(Struct, kw_only=True):
    """OpenAI's response. Fields of the request are repeated."""

    id: str
    """Id of the response."""
    object: Literal["response"]
    """Type of the object."""
    created_at: int
    """Time in seconds since 1970."""
    model: str
    """Name of the model."""
    status: str
    """`in_progress`, `completed` or `incomplete`."""
    output: list[OutputItem]
    """Items of the answer."""
    usage: ResponseUsage | None
    """Tokens of the request."""
    completed_at: int | None = None
    """Time of the end in seconds since 1970."""
    error: ErrorDetail | None = None
    """Null."""
    incomplete_details: dict[str, str] | None = None
    """`{"reason": "max_output_tokens"}` if the response is incomplete."""
    parallel_tool_calls: bool | None = None
    """True if several tools may be called at once."""
    tool_choice: str | dict[str, Any] | None = None
    """The value of the request."""
    tools: list[dict[str, Any]] | None = None
    """The value of the request."""
    truncation: str | None = None
    """`disabled`."""
    store: bool | None = None
    """True if the response is stored."""
    instructions: str | None = None
    """The value of the request."""
    max_output_tokens: int | None = None
    """The value of the request."""
    metadata: dict[str, Any] | None = None
    """The value of the request."""
    previous_response_id: str | None = None
    """The value of the request."""
    temperature: float | None = None
    """The value of the request."""
    top_p: float | None = None
    """The value of the request."""
    text: dict[str, Any] | None = None
    """The value of the request."""
    user: str | None = None
    """The value of the request."""


class ResponseEvent(Struct, kw_only=True):
    """An event of a response's stream."""

    type: str
    """`response.created`, `response.output_text.delta`, `response.completed` and further types."""
    sequence_number: int
    """Number of the event."""
    response: ResponseObject | None = None
    """The response, at its beginning and end."""
    output_index: int | None = None
    """Number of the item."""
    content_index: int | None = None
    """Number of the part of the item's content."""
    item_id: str | None = None
    """Id of the item."""
    item: OutputItem | None = None
    """An item that is added or done."""
    part: OutputContent | None = None
    """A part of the content that is added or done."""
    delta: str | None = None
    """Further text or arguments."""
    text: str | None = None
    """Whole text of a part that is done."""
    name: str | None = None
    """Name of the called function."""
    arguments: str | None = None
    """Arguments of a call that is done, as JSON text."""
    logprobs: list[Any] | None = None
    """Empty."""
    timings: Timings | None = None
    """Measurements, in the last event."""
    prompt_progress: dict[str, Any] | None = None
    """Progress of reading the prompt, with `return_progress`."""
    code: str | None = None
    """Kind of an error."""
    message: str | None = None
    """Text of an error."""
    param: str | None = None
    """Null."""


class Deleted(Struct, kw_only=True):
    """A stored response or file was deleted."""

    id: str
    """Id of what was deleted."""
    object: str
    """`response.deleted`, or `file`."""
    deleted: bool
    """True."""


class FileObject(Struct, kw_only=True):
    """A file that the server keeps."""

    id: str
    """Id of the file."""
    object: Literal["file"]
    """Type of the object."""
    filename: str
    """Name that the client gave."""
    purpose: str
    """`batch`, or `batch_output` for answers."""
    bytes: int
    """Size in bytes."""
    created_at: int
    """When it was made, in seconds since 1970."""
    expires_at: int
    """When it is deleted, in seconds since 1970."""
    status: Literal["processed"]
    """State."""


class FileList(Struct, kw_only=True):
    """A page of files."""

    object: Literal["list"]
    """Type of the object."""
    data: list[FileObject]
    """The files."""
    first_id: str | None
    """Id of the first; null for an empty page."""
    last_id: str | None
    """Id of the last, for `after` of the next page."""
    has_more: bool
    """True if more files follow."""


class BatchError(Struct, kw_only=True):
    """An error in the input of a batch."""

    code: str
    """Kind of the error."""
    message: str
    """Cause and remedy."""
    line: int | None
    """Line of the input, from 1."""
    param: str | None
    """Null."""


class BatchErrors(Struct, kw_only=True):
    """Errors of a batch."""

    object: Literal["list"]
    """Type of the object."""
    data: list[BatchError]
    """The errors."""


class RequestCounts(Struct, kw_only=True):
    """Numbers of a batch's requests."""

    total: int
    """All requests; 0 until the input has been read."""
    completed: int
    """Requests that were answered."""
    failed: int
    """Requests that failed."""


class BatchObject(Struct, kw_only=True):
    """A file of requests that are answered in the background."""

    id: str
    """Id of the batch."""
    object: Literal["batch"]
    """Type of the object."""
    endpoint: str
    """Path of the requests."""
    errors: BatchErrors | None
    """Errors of the input, if it failed."""
    input_file_id: str
    """Id of the file of requests."""
    completion_window: str
    """`24h`."""
    status: str
    """`validating`, `in_progress`, `completed`, `failed`, `expired`, `cancelling` or `cancelled`."""
    output_file_id: str | None
    """Id of the file of answers, at the end."""
    error_file_id: str | None
    """Id of the file of failed requests, at the end."""
    created_at: int
    """When it was made, in seconds since 1970."""
    expires_at: int
    """When its time is over, in seconds since 1970."""
    in_progress_at: int | None = None
    """When the first request began, in seconds since 1970."""
    finalizing_at: int | None = None
    """Null."""
    completed_at: int | None = None
    """When all were answered, in seconds since 1970."""
    failed_at: int | None = None
    """When it failed, in seconds since 1970."""
    expired_at: int | None = None
    """When its time was over, in seconds since 1970."""
    cancelling_at: int | None = None
    """When it was asked to end, in seconds since 1970."""
    cancelled_at: int | None = None
    """When it was cancelled, in seconds since 1970."""
    request_counts: RequestCounts
    """Numbers of requests."""
    metadata: dict[str, str] | None = None
    """Texts of the client."""


class BatchList(Struct, kw_only=True):
    """A page of batches."""

    object: Literal["list"]
    """Type of the object."""
    data: list[BatchObject]
    """The batches."""
    first_id: str | None
    """Id of the first; null for an empty page."""
    last_id: str | None
    """Id of the last, for `after` of the next page."""
    has_more: bool
    """True if more batches follow."""


class Embedding(Struct, kw_only=True):
    """The vector of a text."""

    object: Literal["embedding"]
    """Type of the object."""
    index: int
    """Number of the text."""
    embedding: list[float] | str
    """Components, or base64 of float32 values."""


class EmbeddingList(Struct, kw_only=True):
    """Vectors of texts."""

    object: Literal["list"]
    """Type of the object."""
    model: str
    """Name of the model."""
    data: list[Embedding]
    """The vectors."""
    usage: Usage
    """Tokens of the texts."""


class RankedDocument(Struct, kw_only=True):
    """A document and its relevance."""

    index: int
    """Number of the document."""
    relevance_score: float | None = None
    """Relevance, in Jina's form."""
    score: float | None = None
    """Relevance, in TEI's form."""
    text: str | None = None
    """The document, with `return_text`."""


class Ranking(Struct, kw_only=True):
    """Documents by relevance, in Jina's form."""

    model: str
    """Name of the model."""
    object: Literal["list"]
    """Type of the object."""
    usage: Usage
    """Tokens of query and documents."""
    results: list[RankedDocument]
    """Documents, the most relevant first."""


class OllamaDetails(Struct, kw_only=True):
    """Format, family and size of a model, in Ollama's form."""

    parent_model: str
    """Empty."""
    format: str
    """`gguf`."""
    family: str
    """Architecture."""
    families: list[str]
    """Architecture."""
    parameter_size: str
    """Number of parameters, such as `8.0B`."""
    quantization_level: str
    """Quantization, such as `Q4_K_M`."""


class ListedModel(Struct, kw_only=True):
    """A model in a list, in Ollama's form."""

    name: str
    """Name of the model."""
    model: str
    """Name of the model."""
    modified_at: str
    """Time of the last change."""
    size: int
    """Bytes of the model file."""
    digest: str
    """Digest of the model file."""
    details: OllamaDetails
    """Format, family, size and quantization of the model."""
    type: str | None = None
    """`model` (`/v1/models`)."""
    capabilities: list[str] | None = None
    """`completion`, `embedding`, `tools`, `insert`, `thinking` (`/v1/models`)."""
    context_length: int | None = None
    """Context in tokens (`/api/ps`)."""
    size_vram: int | None = None
    """Bytes on GPUs (`/api/ps`)."""
    expires_at: str | None = None
    """Time when the model is unloaded (`/api/ps`)."""


class ModelInfo(Struct, kw_only=True):
    """A model."""

    id: str
    """Name of the model."""
    object: Literal["model"]
    """Type of the object."""
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
    parent: str | None = None
    """Model of a LoRA adapter."""
    aliases: list[str] | None = None
    """Further names of the model."""
    tags: list[str] | None = None
    """Tags of the model."""
    status: dict[str, Any] | None = None
    """State of the model: `loaded`, `loading`, `unloaded`."""
    meta: dict[str, Any] | None = None
    """Architecture, vocabulary, context, parameters and bytes."""


class ModelEvent(Struct, kw_only=True):
    """Something that happens to a model."""

    event: str
    """`model_status`, `download_` and `progress`, `finished` or `failed`, `models_reload` or `model_remove`."""
    model: str
    """Name of the model; `*` for all models."""
    data: dict[str, Any] | None = None
    """Further values of the event, such as the `status` of a model."""


class ModelList(Struct, kw_only=True):
    """The models of the server."""

    object: Literal["list"]
    """Type of the object."""
    data: list[ModelInfo]
    """Models, in OpenAI's form."""
    models: list[ListedModel]
    """Models, in Ollama's form."""


# --- Anthropic


class AnthropicUsage(Struct, kw_only=True):
    """Tokens of a request, in Anthropic's form."""

    input_tokens: int
    """Tokens of the prompt that were not cached."""
    cache_read_input_tokens: int
    """Tokens of the prompt that were cached."""
    cache_creation_input_tokens: int
    """0."""
    output_tokens: int
    """Generated tokens."""


class AnthropicAnswer(Struct, kw_only=True):
    """Anthropic's message."""

    id: str
    """Id of the message."""
    type: Literal["message"]
    """Type of the object."""
    role: Literal["assistant"]
    """Author."""
    model: str
    """Name of the model."""
    content: list[AnswerBlock]
    """Blocks of the answer."""
    stop_reason: str | None
    """`end_turn`, `max_tokens`, `stop_sequence` or `tool_use`."""
    stop_sequence: str | None
    """The stop sequence that ended the answer."""
    usage: AnthropicUsage
    """Tokens of the request."""


class AnthropicEvent(Struct, kw_only=True):
    """An event of a message's stream."""

    type: str
    """`message_start`, `content_block_start`, `content_block_delta`, `content_block_stop`, `message_delta`, `message_stop`, `ping` or `error`."""  # noqa: E501
    message: AnthropicAnswer | None = None
    """The message at its start."""
    index: int | None = None
    """Number of the block."""
    content_block: AnswerBlock | None = None
    """The block at its start."""
    delta: dict[str, Any] | None = None
    """Further text, reasoning or arguments, or the reason of the end."""
    usage: AnthropicUsage | None = None
    """Tokens of the request, in `message_delta`."""
    error: ErrorDetail | None = None
    """The error, in an event of type `error`."""


# --- Ollama


class OllamaDurations(Struct, kw_only=True):
    """Fields of an answer's last part, in Ollama's form."""

    done_reason: str | None = None
    """`stop`, `length`, `load` or `unload`."""
    total_duration: int | None = None
    """Nanoseconds of the request."""
    load_duration: int | None = None
    """0."""
    prompt_eval_count: int | None = None
    """Tokens of the prompt."""
    prompt_eval_duration: int | None = None
    """Nanoseconds for the prompt."""
    eval_count: int | None = None
    """Generated tokens."""
    eval_duration: int | None = None
    """Nanoseconds of generation."""


class OllamaAnswerMessage(Struct, kw_only=True):
    """The message of an answer, in Ollama's form."""

    role: Literal["assistant"]
    """Author."""
    content: str
    """Text."""
    thinking: str | None = None
    """Reasoning."""
    tool_calls: list[OllamaToolCall] | None = None
    """Tool calls."""


class OllamaChat(OllamaDurations, kw_only=True):
    """Ollama's answer of a chat, or a line of its stream."""

    model: str
    """Name of the model."""
    created_at: str
    """Time."""
    message: OllamaAnswerMessage
    """The message, or its next part."""
    done: bool
    """True in the last part."""
    logprobs: list[TokenLogprob] | None = None
    """Log-probabilities, if the request asks for them."""


class OllamaGeneration(OllamaDurations, kw_only=True):
    """Ollama's answer of a prompt, or a line of its stream."""

    model: str
    """Name of the model."""
    created_at: str
    """Time."""
    response: str
    """The text, or its next part."""
    done: bool
    """True in the last part."""
    thinking: str | None = None
    """Reasoning."""
    logprobs: list[TokenLogprob] | None = None
    """Log-probabilities, if the request asks for them."""


class OllamaEmbeddings(Struct, kw_only=True):
    """Vectors of texts, in Ollama's form."""

    model: str
    """Name of the model."""
    embeddings: list[list[float]]
    """The vectors."""
    total_duration: int
    """Nanoseconds of the request."""
    load_duration: int
    """0."""
    prompt_eval_count: int
    """Tokens of the texts."""


class OllamaEmbedding(Struct, kw_only=True):
    """The vector of a text, in Ollama's older form."""

    embedding: list[float]
    """Components."""


class OllamaModels(Struct, kw_only=True):
    """Models, in Ollama's form."""

    models: list[ListedModel]
    """The models."""


class OllamaStatus(Struct, kw_only=True):
    """A step of a change of models, in Ollama's form."""

    status: str
    """`success` at the end."""


class OllamaVersion(Struct, kw_only=True):
    """The version of Ollama whose interface is served."""

    version: str
    """Version."""


class OllamaModel(Struct, kw_only=True):
    """A model in detail, in Ollama's form."""

    modelfile: str
    """Modelfile that makes the same name with `POST /api/create`; empty for a model without defaults of its own."""
    parameters: str
    """Parameters of the name: a line with a name and a value for each."""
    system: str | None = None
    """System message of the name."""
    messages: list[dict[str, Any]] | None = None
    """Messages before those of each chat."""
    template: str
    """Chat template."""
    details: OllamaDetails
    """Format, family, size and quantization of the model."""
    model_info: dict[str, Any]
    """Metadata of the file, without lists."""
    capabilities: list[str]
    """`completion`, `embedding`, `tools`, `insert`, `thinking`."""
    modified_at: str
    """Time of the last change."""


# --- llama-server


class NativeChunk(Struct, kw_only=True):
    """A part of the stream of llama-server's completion; `response_fields` selects fields."""

    index: int | None = None
    """Number of the completion."""
    content: str | None = None
    """Text."""
    tokens: list[int] | None = None
    """Ids of the tokens, with `return_tokens` or in a stream."""
    stop: bool | None = None
    """True at the end."""
    id_slot: int | None = None
    """Number of the slot, or -1."""
    tokens_predicted: int | None = None
    """Generated tokens."""
    tokens_evaluated: int | None = None
    """Tokens of the prompt."""
    completion_probabilities: list[TokenLogprob] | None = None
    """Probabilities, if the request asks for them."""
    timings: Timings | None = None
    """Measurements."""
    prompt_progress: dict[str, Any] | None = None
    """Progress of reading the prompt, with `return_progress`."""


class NativeCompletion(NativeChunk, kw_only=True):
    """llama-server's completion."""

    model: str | None = None
    """Name of the model."""
    generation_settings: dict[str, Any] | None = None
    """Options of the generation."""
    prompt: str | None = None
    """Text of the prompt."""
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
    """The vector of a text, in llama-server's form."""

    index: int
    """Number of the text."""
    embedding: list[list[float]]
    """A list with the vector."""


class TokenPiece(Struct, kw_only=True):
    """A token and its text."""

    id: int
    """Id of the token."""
    piece: str | list[int]
    """Text of the token, or its bytes if they are not UTF-8."""


class TokenList(Struct, kw_only=True):
    """Tokens of a text."""

    tokens: list[int | TokenPiece]
    """Ids, with texts if the request asks for pieces."""


class TextOfTokens(Struct, kw_only=True):
    """Text of tokens."""

    content: str
    """The text."""


class RenderedPrompt(Struct, kw_only=True):
    """The prompt of a chat."""

    prompt: str
    """The prompt."""


class AdapterScale(Struct, kw_only=True):
    """A LoRA adapter."""

    id: int
    """Number of the adapter."""
    path: str
    """Name of the file."""
    scale: float
    """Scale factor."""


class SlotState(Struct, kw_only=True):
    """State of a slot."""

    id: int
    """Number of the slot."""
    n_ctx: int
    """Context in tokens."""
    speculative: bool
    """False."""
    is_processing: bool
    """True if a sequence runs in the slot."""


class SlotResult(Struct, kw_only=True):
    """Result of an action on a slot."""

    id_slot: int
    """Number of the slot."""
    filename: str | None = None
    """Name of the file."""
    n_saved: int | None = None
    """Saved tokens."""
    n_cached: int | None = None
    """Tokens whose cache is on disk, or was found in memory or on disk."""
    n_written: int | None = None
    """Bytes of the written file, without the cache's."""
    n_restored: int | None = None
    """Restored tokens."""
    n_read: int | None = None
    """Bytes of the read file, without the cache's."""
    n_erased: int | None = None
    """Erased tokens."""
    timings: dict[str, float] | None = None
    """Milliseconds."""


class DevicePart(Struct, kw_only=True):
    """Memory that a model takes on one device."""

    name: str
    """Name of the device, such as `vulkan0`, or `cpu`."""
    is_gpu: bool
    """True for a GPU."""
    bytes: int
    """Bytes of all parts."""
    parts: dict[str, int]
    """Bytes by part: `attention`, `ffn`, `experts`, `embeddings`, `output`, `other`, `kv_cache`, `recurrent_state`, `activations`."""  # noqa: E501
    layers: list[int]
    """Numbers of the layers; the output counts as one more."""


class Properties(Struct, kw_only=True):
    """Properties of the server and its model; a server of several models omits the latter."""

    build_info: str
    """Program and version."""
    ui_settings: dict[str, Any]
    """Settings of the web page."""
    role: str | None = None
    """`router` for a server of several models."""
    max_instances: int | None = None
    """Maximum models loaded at once."""
    models_autoload: bool | None = None
    """True if requests load models."""
    default_generation_settings: dict[str, Any] | None = None
    """Default options of a generation."""
    n_ctx_train: int | None = None
    """Context that the model was trained for, in tokens."""
    n_cache: int | None = None
    """Tokens that the key/value cache holds, of all sequences together; 0 without a cache."""
    total_slots: int | None = None
    """Maximum sequences that run at once."""
    model_alias: str | None = None
    """Name of the model."""
    model_path: str | None = None
    """Name of the model file."""
    chat_template: str | None = None
    """Chat template."""
    chat_template_caps: dict[str, bool] | None = None
    """Capabilities of the chat template."""
    tools_in: str | None = None
    """Where tools are described: `template`, or `system message` if the chat template shows none."""
    model_ftype: str | None = None
    """Quantization of the model."""
    placement: list[DevicePart] | None = None
    """Parts of the model on each device, GPUs first."""
    modalities: dict[str, bool] | None = None
    """Kinds of input besides text."""
    media_marker: str | None = None
    """Text that stands for an image in the `prompt_string` of a prompt."""
    endpoint_slots: bool | None = None
    """True if `/slots` is served."""
    endpoint_props: bool | None = None
    """False: properties cannot be changed."""
    endpoint_metrics: bool | None = None
    """True if `/metrics` is served."""
    ui: bool | None = None
    """True if the web page is served."""
    cors_proxy_enabled: bool | None = None
    """False."""
    bos_token: str | None = None
    """Token at the beginning of a text."""
    eos_token: str | None = None
    """Token at the end of a text."""
    is_sleeping: bool | None = None
    """True if the model is not loaded."""
