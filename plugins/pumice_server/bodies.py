"""The bodies of requests, a class for each kind.

The classes check requests, and ``/openapi.json`` and the reference of the documentation derive from them. The text
below a field describes it there. A field without one is the option of the same name in ``pumice.options``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct, defstruct, field

from pumice import options
from pumice.plugin.unstable import MAX_IMAGES
from pumice_server import limits
from pumice_server.body import Body
from pumice_server.field_types import (
    EUCLIDEAN,
    AnthropicMessages,
    AnthropicTools,
    Choices,
    Count,
    Digests,
    Dimensions,
    EmbeddingInput,
    Format,
    Grammar,
    JSONSchema,
    KeepAlive,
    LogitBias,
    Messages,
    Milliseconds,
    Name,
    Natural,
    NChoices,
    NLogprobs,
    Norm,
    NProbs,
    Object,
    OllamaMessages,
    Pattern,
    Penalty,
    Position,
    Priority,
    Prompt,
    Real,
    ResponseItems,
    ResponseTools,
    SamplerNames,
    Seed,
    SequenceBreakers,
    Short,
    SmallObject,
    Stop,
    Stops,
    SystemBlocks,
    Texts,
    TextsAndIds,
    TokenIds,
    Tools,
    Word,
    bounded,
    refused,
)
from pumice_server.schemas import refusals

_OTHER_FIELD = "messages and the `multimodal_data` of a prompt have the images"


class ModelBody(Body):
    """The body of a request to one model."""

    model: Name | None = None
    """Name of the model (default: the first that is served)."""


class Scale(Struct):
    """The scale of a LoRA adapter."""

    id: Position
    """Number of the adapter, in the order of `/lora-adapters`."""
    scale: Real = 0.0
    """Scale factor (0 = off)."""


Scales = Annotated[list[Scale], Meta(max_length=limits.MAX_SCALES)]


class StructuredOutputs(Struct):
    """The format of a text, by the names of vLLM."""

    json: JSONSchema | None = None
    """JSON schema."""
    grammar: Grammar | None = None
    """Grammar in GBNF."""
    regex: Pattern | None = None
    """Regular expression."""
    choice: Choices | None = None
    """Texts of which the answer is one."""


SAMPLING = tuple(name for name in options.SAMPLING if name != "logit_bias")
"""Parameters of the sampler chain; ``logit_bias`` has a format of its own in requests."""

_WIDER_TYPES: Mapping[str, Any] = {
    "temperature": Real,  # negative: 0
    "repeat_last_n": Count,  # -1: the context
    "dry_penalty_last_n": Count,  # -1: the context
    "repeat_penalty": Penalty,
    "dry_sequence_breakers": SequenceBreakers,
    "seed": Seed,
}


def _sampling_field(name: str) -> tuple[str, Any, None]:
    option = options.SAMPLING[name]
    kind = _WIDER_TYPES.get(name) or bounded(option.type, option.limits)
    return name, Annotated[kind, Meta(description=option.meaning)] | None, None


if TYPE_CHECKING:

    class Sampling(Body):
        """Parameters of the sampler chain, as ``pumice.options`` defines them."""

        temperature: float | None = None

else:
    Sampling = defstruct("Sampling", map(_sampling_field, SAMPLING), bases=(Body,), kw_only=True, module=__name__)


class Trigger(Struct):
    """A text that begins a grammar, in llama-server's format."""

    value: Stop
    """The text."""
    type: Literal[0, 1, 2, 3] = 1
    """0: a token by its text, 1: a text; 2 and 3, patterns, are refused."""


Triggers = Annotated[list[Stop | Trigger], Meta(max_length=16)]


class Generation(Sampling):
    """Fields of every protocol for a text that is generated."""

    samplers: SamplerNames | None = None
    """Names of the samplers in their order, or llama-server's letters for them in one text."""
    repetition_penalty: Penalty | None = None
    """vLLM's name of `repeat_penalty`."""
    logit_bias: LogitBias | None = None
    """Amount added to the logit of each token, by id or text; false bans the token."""
    max_tokens: Count | None = None
    """Maximum tokens of an answer (-1 = no limit)."""
    max_completion_tokens: Count | None = None
    """OpenAI's newer name of `max_tokens`."""
    n_predict: Count | None = None
    """llama-server's name of `max_tokens`."""
    t_max_predict_ms: Milliseconds = 0
    """Milliseconds after which the text ends at the next newline (0 = no limit)."""
    priority: Priority = 0
    """Requests of the lowest number run first; after 30 seconds of waiting a request runs next in any case."""
    stop_token_ids: TokenIds | None = None
    """Ids of tokens that end the text."""
    lora: Scales | None = None
    """Scale of each LoRA adapter; adapters that are not listed are off."""
    grammar: Grammar | None = None
    json_schema: JSONSchema | None = None
    regex: Pattern | None = None
    choices: Choices | None = None
    json_whitespace: bool | None = None
    structured_outputs: StructuredOutputs | None = None
    """Format of the text, by vLLM's names."""
    guided_json: JSONSchema | None = None
    """vLLM's name of `json_schema`."""
    guided_grammar: Grammar | None = None
    """vLLM's name of `grammar`."""
    guided_regex: Pattern | None = None
    """vLLM's name of `regex`."""
    guided_choice: Choices | None = None
    """vLLM's name of `choices`."""
    id_slot: Annotated[int, Meta(ge=-1, le=limits.MAX_IDS)] = -1
    """Slot that keeps the tokens, for `/slots`; with a single slot every request has it."""
    cache_salt: Annotated[str, Meta(max_length=256)] | None = None
    """Share cached prompts only with requests of the same API key and the same salt."""
    cache_prompt: bool = True
    """Use cached prompts of earlier requests."""
    grammar_lazy: bool = False
    """Leave the text free until one of `grammar_triggers`, from which on the grammar applies."""
    grammar_triggers: Triggers | None = None
    """Texts that trigger the grammar with `grammar_lazy`, or llama-server's objects with `type` and `value`."""
    image_data: Annotated[Any, refused(_OTHER_FIELD)] = None
    speculate: bool | Short | None = None
    """Speculative decoding: `auto` (true), `off` (false), or proposers with commas between (default: the server's)."""
    n_draft: Natural | None = None
    """Maximum drafted tokens per batch (0 = none)."""
    speculative_n_max: Natural | None = field(name="speculative.n_max", default=None)
    """llama-server's name of `n_draft`."""
    min_tokens: Natural = 0
    """Minimum tokens before an end token or a stop string ends the text (vLLM's)."""

    def __post_init__(self) -> None:
        """Refuse fields of subclasses alone: those of this class do not matter to prompts that are only counted."""
        deferred = refusals(Generation)
        self.refuse({name: reason for name, reason in refusals(type(self)).items() if name not in deferred})

    def refuse_unsupported(self) -> None:
        """Raise HTTPException for a field that would change the text, and is not supported."""
        self.refuse(refusals(Generation))

    def draft_limit(self) -> int | None:
        """Return the maximum drafted tokens that the request asks for."""
        return self.speculative_n_max if self.n_draft is None else self.n_draft

    def token_limit(self) -> int | None:
        """Return the maximum tokens that the request asks for."""
        limits_by_name = (self.n_predict, self.max_completion_tokens, self.max_tokens)
        return next((limit for limit in limits_by_name if limit is not None), None)

    def stop_strings(self) -> list[str]:
        """Return the texts that end the answer."""
        return []


class StreamOptions(Struct):
    """Options of a stream."""

    include_usage: bool | None = None
    """End the stream with its `usage`."""


class TextBody(Generation):
    """Fields shared by OpenAI's and llama-server's bodies."""

    model: Name | None = None
    """Name of the model, or of a LoRA adapter (default: the first model that is served)."""
    stream: bool = False
    """Send the answer in parts, as server-sent events."""
    stream_options: StreamOptions | None = None
    """Options of the stream."""
    stop: Stop | Stops | None = None
    """Texts that end the answer."""
    timings_per_token: bool = False
    """Add `timings` to every part of a stream."""
    return_progress: bool = False
    """Report in a stream how much of the prompt has been read."""

    def stop_strings(self) -> list[str]:
        return [self.stop] if isinstance(self.stop, str) else self.stop or []

    @property
    def wants_usage(self) -> bool:
        """True if a stream ends with its usage."""
        return self.stream_options is not None and self.stream_options.include_usage is True


# --- OpenAI


class TemplateBody(TextBody):
    """Fields that a chat template is rendered with, besides messages."""

    tools: Tools | None = None
    tool_choice: Name | Object | None = None
    parallel_tool_calls: bool | None = None
    enable_thinking: bool | None = None
    """Let a model reason that can."""
    reasoning_budget_tokens: Count | None = None
    """Maximum tokens of reasoning (-1 = no limit)."""
    thinking_budget_tokens: Count | None = None
    """Another name of `reasoning_budget_tokens`."""
    chat_template_kwargs: Object | None = None
    """Variables of the chat template."""


class ChatPromptBody(TemplateBody, kw_only=True):
    """A chat whose prompt is wanted."""

    messages: Messages
    """Messages of the chat, the oldest first."""
    reasoning_effort: Word | None = None
    continue_final_message: bool | None = None
    add_generation_prompt: bool | None = None


class PredictedText(Struct):
    """A part of a predicted text."""

    text: str
    """Text of the part."""
    type: Literal["text"] = "text"
    """Kind of the part; predictions have texts alone."""


class PredictedContent(Struct):
    """Text that the answer is expected to resemble."""

    content: str | Annotated[list[PredictedText], Meta(max_length=limits.MAX_TEXTS)]
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
    response_format: Format | None = None
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


_NO_SPEAKERS = "models that hear do not tell speakers apart"


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
    """Most tokens of the text (-1: what the context has room for); Whisper takes no other."""
    stream: bool = False
    """Send events while the text is generated."""
    timestamp_granularities: Word | None = None
    """`segment`: the times of segments, or of pieces of up to 30 seconds (`verbose_json` has them anyway)."""
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
    instructions: Annotated[Any, refused("models that speak take none")] = None


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

    input: str | ResponseItems
    """Text, or a list of items: messages, reasoning, function calls and their outputs."""
    instructions: str | None = None
    """System message of this response."""
    previous_response_id: Name | None = None
    """Id of a stored response that this one continues."""
    store: bool = True
    """Keep the response for later requests."""
    max_output_tokens: Count | None = None
    """Maximum tokens of the response."""
    tools: ResponseTools | None = None
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


class StreamLookupBody(Body, kw_only=True):
    """Conversations whose streams are looked for."""

    conversation_ids: Annotated[list[Name], Meta(max_length=limits.MAX_TEXTS)]
    """Ids of the conversations, as in `X-Conversation-Id`."""


class ToolBody(Body, kw_only=True):
    """A call of a tool that the server runs."""

    tool: Name
    """Name of the tool."""
    params: Object = {}
    """Arguments of the call."""


class DocumentBody(Body, kw_only=True):
    """A file whose text is asked for."""

    pdf: Annotated[str, Meta(max_length=44_739_244)]
    """PDF file in base64, up to 32 MiB and 2,000 pages."""


class BatchBody(Body, kw_only=True):
    """A file of requests to answer in the background."""

    input_file_id: Name
    """Id of the file, a line for each request."""
    endpoint: Name
    """Path of all requests, such as `/v1/chat/completions`."""
    completion_window: Literal["24h"] = "24h"
    """Time after which the batch ends with the answers that it has."""
    metadata: Annotated[dict[Word, Short], Meta(max_length=16)] | None = None
    """Returned with the batch: at most 16 texts, under keys of at most 64 characters."""


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
    """Requests with a lower one come first."""


class RerankBody(ModelBody, kw_only=True):
    """Documents to rank for a query."""

    query: str
    """Text that the documents are compared with."""
    documents: Texts | None = None
    """Texts to rank, in Jina's format."""
    texts: Texts | None = None
    """Texts to rank, in TEI's format."""
    top_n: Position | None = None
    """Number of documents to return (default: all)."""
    return_text: bool = False
    """Return the texts too (TEI's format)."""
    priority: Priority = 0
    """Requests with a lower one come first."""


# --- llama-server


class NativeGenerationBody(TextBody):
    """Fields shared by llama-server's completions."""

    n: NChoices = 1
    """Number of completions of each prompt."""
    n_cmpl: NChoices | None = None
    """llama-server's name of `n`."""
    n_probs: NProbs = 0
    """Number of the most probable tokens to report at each position."""
    post_sampling_probs: bool = False
    """Report probabilities after the sampler chain."""
    return_tokens: bool = False
    """Return the ids of the tokens."""
    response_fields: Annotated[list[Name], Meta(max_length=100)] | None = None
    """Fields of the answer to return; `a/b` is the field b of the field a."""
    sse_ping_interval: Annotated[int, Meta(ge=-1, le=3600)] = 30
    """Seconds between two comments in a stream while no token comes (0 or less: none)."""
    n_keep: Annotated[int, Meta(ge=-1, le=limits.MAX_IDS)] | None = None
    """Ignored."""
    n_discard: Position | None = None
    """Ignored."""
    n_indent: Position | None = None
    """Ignored."""
    n_cache_reuse: Position | None = None
    """Ignored."""
    prompt_logprobs: Annotated[Any, refused("/v1/completions reports them")] = None


class NativeCompletionBody(NativeGenerationBody, kw_only=True):
    """llama-server's completion."""

    prompt: Prompt
    """Text, token ids, both mixed, an object with `prompt_string` and `multimodal_data`, or a list of these."""


class FilledFile(Struct):
    """Another file of a project."""

    text: str
    """Contents of the file."""
    filename: str = "tmp"
    """Name of the file."""


class InfillBody(NativeGenerationBody, kw_only=True):
    """Text to fill in between a prefix and a suffix."""

    input_prefix: str | TextsAndIds
    """Text before the gap."""
    input_suffix: str | TextsAndIds
    """Text after the gap."""
    input_extra: Annotated[list[FilledFile], Meta(max_length=256)] | None = None
    """Other files of the project."""
    prompt: str = ""
    """Text that the gap begins with."""


class NativeEmbeddingsBody(ModelBody):
    """Texts to embed, in llama-server's format."""

    input: EmbeddingInput | None = None
    """Text, token ids, an object with `prompt_string` and `multimodal_data` or with `content`, or a list of these."""
    content: EmbeddingInput | None = None
    """Another name of `input`."""
    embd_normalize: Norm = EUCLIDEAN
    """Norm of the vectors (-1: none, 0: largest component, 2: Euclidean)."""
    dimensions: Dimensions | None = None
    """Number of components of a vector."""
    truncate: bool = False
    """Cut texts that are longer than the context."""


class TokenizeBody(ModelBody):
    """A text whose tokens are wanted."""

    content: str = ""
    """Text, of at most 2 MiB."""
    add_special: bool = False
    """Add the tokens of the beginning and the end."""
    parse_special: bool = True
    """Read special tokens in the text as such."""
    with_pieces: bool = False
    """Return the text of each token too."""


class DetokenizeBody(ModelBody):
    """Tokens whose text is wanted."""

    tokens: Annotated[list[int], Meta(max_length=limits.MAX_IDS)] = field(default_factory=list)
    """Token ids."""


class SlotBody(ModelBody):
    """An action on a slot."""

    may_be_empty: ClassVar[bool] = True

    filename: Name = ""
    """Name of the file, of letters, digits, dots, `-` and `_`."""


class NamedModelBody(Body):
    """A model to load or to unload."""

    model: Name = ""
    """Name of the model."""


# --- Anthropic


class Thinking(Struct):
    """Whether and how long to reason."""

    type: Word | None = None
    """`enabled`, `adaptive` or `disabled`."""
    budget_tokens: Count | None = None
    """Maximum tokens of reasoning."""


class OutputConfig(Struct):
    """How to answer."""

    effort: Word | None = None
    """How long to reason: `low`, `medium`, `high`."""
    format: Object | None = None
    """`{"type": "json_schema", "schema": …}`."""


class AnthropicPromptBody(Generation, kw_only=True):
    """A chat whose tokens are counted."""

    model: Name | None = None
    """Name of the model (default: the first that is served)."""
    messages: AnthropicMessages
    """Messages of the chat, the oldest first."""
    system: str | SystemBlocks | None = None
    """System prompt: text, or blocks of text."""
    tools: AnthropicTools | None = None
    """Tools that the model may use."""
    tool_choice: Object | None = None
    """`{"type": "auto"}`, `any`, `none`, or `tool` with a name."""
    thinking: Thinking | None = None
    """Whether and how long to reason."""
    output_config: OutputConfig | None = None
    """Effort, and the format of the answer."""


class AnthropicMessagesBody(AnthropicPromptBody):
    """Anthropic's message."""

    stream: bool = False
    """Send the answer in parts, as server-sent events."""
    max_tokens: Count = 4096
    """Maximum tokens of the answer."""
    stop_sequences: Stops | None = None
    """Texts that end the answer."""
    output_format: Object | None = None
    """Older name of `output_config.format`."""

    def stop_strings(self) -> list[str]:
        return self.stop_sequences or []


# --- Ollama


class OllamaOptions(Generation):
    """Ollama's options of generation; options of loading are ignored."""

    num_predict: Annotated[int, Meta(ge=-2, le=2**31 - 1)] | None = None
    """Maximum tokens of the answer (-1: no limit, -2: until the context is full)."""
    draft_num_predict: Natural | None = None
    """Ollama's name of `n_draft`."""
    stop: Stop | Stops | None = None
    """Texts that end the answer."""

    def draft_limit(self) -> int | None:
        limit = super().draft_limit()
        return self.draft_num_predict if limit is None else limit

    def token_limit(self) -> int | None:
        return -1 if self.num_predict in (None, -2) else self.num_predict

    def stop_strings(self) -> list[str]:
        return [self.stop] if isinstance(self.stop, str) else self.stop or []


class OllamaGenerationBody(ModelBody):
    """Fields shared by Ollama's chat and generate."""

    stream: bool = True
    """Send the answer in parts, as lines of JSON."""
    options: OllamaOptions = field(default_factory=lambda: OllamaOptions())
    """Parameters of generation."""
    format: Grammar | Annotated[dict[str, Any], Meta(max_length=1 << 16)] | None = None
    """`json`, or a JSON schema."""
    think: bool | Word | None = None
    """Let the model reason; `low`, `medium`, `high` say how long."""
    keep_alive: KeepAlive | None = None
    """Seconds that the model stays loaded, or a duration such as `5m` (negative: forever); needs the scope admin."""
    logprobs: bool = False
    """Report log-probabilities of the tokens."""
    top_logprobs: NLogprobs = 0
    """Number of the most probable tokens to report at each position."""
    cache_salt: Annotated[str, Meta(max_length=256)] | None = None
    """Share cached prompts only with requests of the same API key and the same salt."""
    id_slot: Annotated[int, Meta(ge=-1, le=limits.MAX_IDS)] = -1
    """Slot that keeps the tokens, for `/slots`; with a single slot every request has it."""
    cache_prompt: bool = True
    """Reuse the cache of earlier prompts."""


class OllamaChatBody(OllamaGenerationBody):
    """Ollama's chat. Without messages the model is only loaded."""

    messages: OllamaMessages = field(default_factory=list)
    """Messages of the chat, the oldest first."""
    tools: Tools | None = None


class OllamaGenerateBody(OllamaGenerationBody):
    """Ollama's generate. Without a prompt the model is only loaded."""

    prompt: str = ""
    """Text of the user, or with `raw` the whole prompt."""
    system: str = ""
    """System message."""
    suffix: str = ""
    """Text after the answer, for models with infill tokens."""
    raw: bool = False
    """Use the prompt as it is, without the chat template."""
    template: Annotated[Any, refused("requests cannot bring chat templates")] = None
    images: Annotated[list[str], Meta(max_length=MAX_IMAGES)] | None = None
    """Images of the prompt, in base64."""
    context: Annotated[Any, refused("send the messages of the chat to `/api/chat`")] = None


class OllamaEmbedBody(ModelBody):
    """Texts to embed, in Ollama's format."""

    input: EmbeddingInput | None = None
    """Text, token ids, or a list of these."""
    truncate: bool = True
    """Cut texts that are longer than the context."""
    dimensions: Dimensions | None = None
    """Number of components of a vector."""


class OllamaEmbeddingBody(ModelBody):
    """A text to embed, in Ollama's older format."""

    prompt: str = ""
    """Text."""


class OllamaNameBody(Body):
    """A model of Ollama."""

    model: Name | None = None
    """Name of the model."""
    name: Name | None = None
    """Older name of `model`."""

    @property
    def named(self) -> str | None:
        """The name of the model."""
        return self.model if self.model is not None else self.name


class OllamaCreateBody(OllamaNameBody):
    """A name for a served model, with defaults of its own, or a model of uploaded files."""

    base: Name = field(name="from", default="")
    """Name of a served model."""
    system: Annotated[str, Meta(max_length=1 << 16)] = ""
    """System message of chats that have none."""
    messages: OllamaMessages = field(default_factory=list)
    """Messages before those of each chat."""
    parameters: OllamaOptions | None = None
    """Parameters of generation for requests that do not give them."""
    stream: bool = True
    """Report progress, as lines of JSON."""
    template: Annotated[Any, refused("Ollama's templates are programs of Go; --chat-template names another")] = None
    files: Digests = field(default_factory=dict)
    """Files of the model by name, each the digest of an upload to `/api/blobs`: GGUF, its parts, its projector."""
    adapters: Digests = field(default_factory=dict)
    """LoRA adapters by file name, each the digest of an upload."""
    quantize: Annotated[Any, refused("`pumice quantize` quantizes files")] = None
    modelfile: Annotated[str, Meta(max_length=1 << 20)] = ""
    """Modelfile with FROM, PARAMETER, SYSTEM and MESSAGE, in place of the other fields."""


class OllamaCopyBody(Body):
    """Another name for a served model."""

    source: Name = ""
    """Name of the model."""
    destination: Name = ""
    """The other name."""


class OllamaPullBody(OllamaNameBody):
    """A model to fetch."""

    stream: bool = True
    """Report progress, as lines of JSON."""


# --- Vertex AI


class PredictedChat(ChatBody, kw_only=True):
    """One chat of several."""

    format: Literal["chatCompletions"] = field(name="@requestFormat")
    """Format of the instance."""
    stream: Annotated[Any, refused("predictions are not streamed")] = False


class PredictionsBody(Body, kw_only=True):
    """Several chats in one request, for one model."""

    instances: Annotated[list[PredictedChat], Meta(min_length=1, max_length=limits.MAX_PROMPTS)]
    """Chats."""
