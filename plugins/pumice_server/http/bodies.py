"""The bodies of requests, a class for each kind.

The classes check requests, and ``/openapi.json`` and the reference of the documentation derive from them. The text
below a field describes it there. A field without one is the option of the same name in ``pumice.options``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, Struct, defstruct, field

from pumice import options
from pumice_server import limits
from pumice_server.field_types import (
    Choices,
    Count,
    Grammar,
    JSONSchema,
    LogitBias,
    Messages,
    Milliseconds,
    Name,
    Natural,
    Object,
    Pattern,
    Penalty,
    Position,
    Priority,
    Real,
    SamplerNames,
    Seed,
    SequenceBreakers,
    Short,
    Stop,
    Stops,
    TokenIds,
    Tools,
    Word,
    bounded,
    refused,
)
from pumice_server.http.body import Body
from pumice_server.http.schemas import refusals

_OTHER_FIELD = "messages and the `multimodal_data` of a prompt have the images"


class Caching(Body):
    """Fields about cached prompts."""

    id_slot: Annotated[int, Meta(ge=-1, le=limits.MAX_IDS)] = -1
    """Slot that keeps the tokens, for `/slots`; with a single slot every request has it."""
    cache_salt: Annotated[str, Meta(max_length=256)] | None = None
    """Share cached prompts only with requests of the same API key and the same salt."""
    cache_prompt: bool = True
    """Use cached prompts of earlier requests."""


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


class AdapterFile(Struct):
    """A LoRA adapter or a control vector to add."""

    path: Name
    """Path of the file in the folder of `--lora-dir`."""
    name: Name | None = None
    """Name of the adapter (default: the file's, without its ending)."""
    scale: Real = 1.0
    """Scale factor for requests that do not set it."""
    layers: Annotated[list[Position], Meta(max_length=2)] = []
    """First and last layer that a control vector changes (default: all)."""


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

    class Sampling(Caching):
        """Parameters of the sampler chain, as ``pumice.options`` defines them."""

        temperature: float | None = None

else:
    Sampling = defstruct("Sampling", map(_sampling_field, SAMPLING), bases=(Caching,), kw_only=True, module=__name__)


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
    """Functions of the type `function`, and MCP servers of `--allow-tools`: the type `mcp` with a `server_label`, and
    names of tools as `allowed_tools`."""
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
    """Messages of the chat, the oldest first: `role`; `content`, a text or parts of the types `text`, `image_url`,
    `input_audio`, `video_url` and `input_video`; `reasoning_content`, `tool_calls`, `tool_call_id`, `name`. Files are
    base64, as OpenAI's clients send them; addresses of other hosts need `--allow-media-from`."""
    reasoning_effort: Word | None = None
    continue_final_message: bool | None = None
    add_generation_prompt: bool | None = None
