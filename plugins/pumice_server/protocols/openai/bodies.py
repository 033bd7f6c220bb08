"""Bodies of requests of OpenAI's protocol."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from pumice_server.field_types import (
    EUCLIDEAN,
    Count,
    Dimensions,
    EmbeddingInput,
    Messages,
    Name,
    Natural,
    NChoices,
    NLogprobs,
    Norm,
    Object,
    Priority,
    Prompt,
    Seed,
    SmallObject,
    Tools,
    Word,
    refused,
)
from pumice_server.interface import ChatPromptBody, ModelBody, TemplateBody, TextBody
from pumice_server.limits import MAX_TEXTS


class PredictedText(Struct):
    """A part of a predicted text."""

    text: str
    """Text of the part."""
    type: Literal["text"] = "text"
    """Kind of the part; predictions have texts alone."""


class PredictedContent(Struct):
    """Text that the answer is expected to resemble."""

    content: str | Annotated[list[PredictedText], Meta(max_length=MAX_TEXTS)]
    """The text, whole or in parts."""
    type: Literal["content"] = "content"
    """Kind of prediction; there is no other."""


class ChatBody(ChatPromptBody):
    """A chat completion."""

    n: NChoices = 1
    """Number of answers."""
    logprobs: bool = False
    """Report log-probabilities of the tokens."""
    top_logprobs: NLogprobs | None = None
    """Number of the most probable tokens to report at each position, with `logprobs`."""
    n_probs: NLogprobs = 0
    """llama-server's name for both."""
    response_format: Object | None = None
    """Format of the answer: the `type` `text`, `json_object` or `json_schema`, the latter with the `schema` in
    `json_schema`, beside the type (llama-server) or as `value` (TGI)."""
    prediction: PredictedContent | None = None
    """Text that the answer is expected to resemble, such as the file to edit: its tokens are drafts."""
    reasoning_format: Literal["auto", "deepseek", "none"] | None = None
    """`none` leaves reasoning in the content."""
    reasoning_budget_message: Annotated[str, Meta(max_length=4096)] | None = None
    reasoning_control: bool = False
    """Let `/v1/chat/completions/control` end the reasoning of this answer, which must be streamed."""
    verbose: bool | None = None
    """Add `__verbose` with the prompt and the settings."""
    prompt_logprobs: Annotated[Any, refused("/v1/completions reports them")] = None
    functions: Annotated[Any, refused("its successor is tools")] = None
    audio: Annotated[Any, refused("answers are texts, which /v1/audio/speech speaks")] = None


_NO_SPEAKERS = "models do not distinguish speakers"


class TranscriptionBody(ModelBody, kw_only=True):
    """The fields of the form of a transcription or translation, beside `file`."""

    language: Word | None = None
    """Language spoken, as a code such as `en` or by name (default: the model finds out)."""
    prompt: Annotated[str, Meta(max_length=4096)] | None = None
    """Context, such as names that occur."""
    response_format: Literal["json", "text", "verbose_json", "srt", "vtt"] = "json"
    """Format of the answer. `verbose_json` has the duration and segments, `srt` and `vtt` are subtitles."""
    temperature: Annotated[float, Meta(ge=0, le=2)] = 0.0
    """Temperature of the sampler; with 0 Whisper raises it for a text that is improbable or repeats itself."""
    max_tokens: Count = -1
    """Maximum tokens of the text (-1 = until the context is full); -1 for Whisper."""
    stream: bool = False
    """Send events while the text is generated."""
    timestamp_granularities: Word | None = None
    """`segment` (default): the times of segments, or of pieces of up to 30 seconds; `word`: of words (Whisper)."""
    hotwords: Annotated[str, Meta(max_length=4096)] | None = None
    """Words that are expected throughout, such as names (Whisper)."""
    chunking_strategy: Literal["auto"] | None = None
    """`auto`: skip silence, cut the speech at quiet places, and hear several parts at once (Whisper)."""
    include: Annotated[Any, refused("transcriptions have no log-probabilities")] = None
    known_speaker_names: Annotated[Any, refused(_NO_SPEAKERS)] = None
    known_speaker_references: Annotated[Any, refused(_NO_SPEAKERS)] = None


class SpeechBody(ModelBody, kw_only=True):
    """A text to speak."""

    input: Annotated[str, Meta(min_length=1, max_length=4096)]
    """Text; in Latin letters for OuteTTS."""
    voice: Word = "default"
    """Name of a file of `--voices` without its ending, or of a voice of the model; `default` leaves it to the model."""
    response_format: Literal["mp3", "opus", "flac", "wav", "pcm"] = "mp3"
    """Format of the sound: one channel of 24,000 samples a second; `pcm` has 16 bits a sample and no header."""
    stream_format: Literal["audio", "sse"] = "audio"
    """`sse`: the file in base64, in events."""
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    """Temperature of the sampler (default: 0.1 for OuteTTS, 0.3 for Pocket TTS, 0.9 for Qwen3-TTS)."""
    language: Word | None = None
    """Language of the text, for Qwen3-TTS, such as `english` (default: the model's choice)."""
    seed: Seed | None = None
    """Seed of the sampler (default: random)."""
    max_seconds: Annotated[float, Meta(ge=0.1, le=1800)] = 600.0
    """Maximum length of the sound in seconds."""
    speed: Annotated[float, Meta(ge=0.25, le=4)] = 1.0
    """Only 1 is supported."""
    instructions: Annotated[Any, refused("models that speak have none")] = None


class ControlBody(ModelBody, kw_only=True):
    """A change to an answer that is being streamed."""

    id: Name
    """Id of the answer, from its stream."""
    action: Literal["reasoning_end"]
    """`reasoning_end`: let the answer follow after the next token of reasoning."""


class CompletionBody(TextBody, kw_only=True):
    """A completion, without a chat template."""

    prompt: Prompt
    """Text, token ids, or a list of these."""
    n: NChoices = 1
    """Number of completions of each prompt."""
    best_of: NChoices | None = None
    """Number of completions of which the `n` with the highest mean log-probability per token are returned."""
    logprobs: NLogprobs | None = None
    """Number of the most probable tokens to report at each position."""
    n_probs: NLogprobs = 0
    """llama-server's name of `logprobs`."""
    suffix: str = ""
    """Text after the completion, for models with infill tokens."""
    echo: bool = False
    """Repeat the prompt at the beginning of the completion."""
    prompt_logprobs: NLogprobs | None = None
    """Number of the most probable tokens to report at each position of the prompt."""


class ResponseReasoning(Struct):
    """How long to reason."""

    effort: Word | None = None
    """`low`, `medium` or `high`, for templates that know it."""


class ResponseBody(TemplateBody, kw_only=True):
    """OpenAI's response."""

    input: str | Messages
    """Text, or a list of items of the types `message` (default), `reasoning`, `function_call`, `function_call_output`,
    `mcp_list_tools`, `mcp_call`, `mcp_approval_request`, `mcp_approval_response` and `item_reference`. Parts of a
    content have the types `input_text`, `input_image`, `input_audio`, `input_video` and `output_text`."""
    instructions: str | None = None
    """System message of this response."""
    previous_response_id: Name | None = None
    """Id of a stored response that this one continues."""
    store: bool = True
    """Keep the response for later requests."""
    max_output_tokens: Count | None = None
    """Maximum tokens of the response."""
    tools: Tools | None = None
    """Functions, and MCP servers of `--allow-tools`: the type `mcp` with a `server_label`, names of tools as
    `allowed_tools`, and `require_approval`. Tools that run at OpenAI are left out."""
    max_tool_calls: Natural | None = None
    """Maximum number of calls of MCP servers' tools."""
    text: Object | None = None
    """`{"format": …}` with the format of the text."""
    reasoning: ResponseReasoning | None = None
    """How long to reason."""
    metadata: SmallObject | None = None
    """Returned with the response."""
    user: Name | None = None
    """Returned with the response."""
    background: Annotated[Any, refused("a response comes while the client waits")] = None
    conversation: Annotated[Any, refused("`previous_response_id` continues a response")] = None
    prompt: Annotated[Any, refused("`input` and `instructions` have the text")] = None

    def token_limit(self) -> int | None:
        return self.max_output_tokens


class EmbeddingsBody(ModelBody, kw_only=True):
    """Texts to embed."""

    input: EmbeddingInput
    """Text, token ids, both mixed, an object with `content`, a list of parts, or a list of these."""
    encoding_format: Literal["float", "base64"] = "float"
    """Format of the vectors."""
    dimensions: Dimensions | None = None
    """Number of components of a vector."""
    truncate: bool = False
    """Cut texts that are longer than the context."""
    embd_normalize: Norm = EUCLIDEAN
    """Norm of the vectors (-1: none, 0: largest component, 2: Euclidean)."""
    priority: Priority = 0
    """Requests of the lowest number run first."""
