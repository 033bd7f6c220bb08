"""Answers, and parts of answers, that several protocols have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vector = NDArray[np.float32] | list[float]
else:
    Vector = list[float]
"""Components of a vector, as an array; in JSON a list."""


class ErrorDetail(Struct, kw_only=True):
    """Description of an error."""

    message: str
    """Cause and remedy."""
    type: str
    code: int | str | None = None
    """HTTP status (OpenAI and llama-server)."""
    param: str | None = None
    """Null."""
    n_prompt_tokens: int | None = None
    """Tokens of a prompt that exceeds the context."""
    n_ctx: int | None = None
    """Context in tokens, if a prompt exceeds it."""


class Error(Struct, kw_only=True):
    """An error, in the protocol's format."""

    error: ErrorDetail | str
    """The error; a text in Ollama's format."""
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
    token: str
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
    object: str | None = None
    """`response.input_tokens` (OpenAI)."""


class Success(Struct, kw_only=True):
    """The action succeeded."""

    success: bool


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
    total_tokens: int
    """Tokens of prompt and answer."""
    completion_tokens: int | None = None
    prompt_tokens_details: PromptDetails | None = None
    """Tokens of the prompt in detail."""
    completion_tokens_details: CompletionDetails | None = None
    """Generated tokens in detail."""


class Deleted(Struct, kw_only=True):
    """A stored response or file was deleted."""

    id: str
    """Id of what was deleted."""
    object: str
    """`response.deleted`, or `file`."""
    deleted: bool


class OllamaDetails(Struct, kw_only=True):
    """Format, family and size of a model, in Ollama's format."""

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
    """A model in a list, in Ollama's format."""

    name: str
    model: str
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


class DevicePart(Struct, kw_only=True):
    """Memory of a model on one device."""

    name: str
    """Name of the device, such as `vulkan0`, or `cpu`."""
    is_gpu: bool
    """True for a GPU."""
    bytes: int
    parts: dict[str, int]
    """Bytes by part: `attention`, `ffn`, `experts`, `embeddings`, `output`, `other`, `kv_cache`, `recurrent_state`, `activations`."""  # noqa: E501
    layers: list[int]
    """Numbers of the layers; the output counts as one more."""


class Properties(Struct, kw_only=True):
    """Properties of the server and its model; a server of several models omits the latter."""

    build_info: str
    ui_settings: dict[str, Any] | None = None
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
    model_path: str | None = None
    chat_template: str | None = None
    chat_template_tool_use: str | None = None
    """Chat template for tools, if the file has one."""
    chat_template_caps: dict[str, bool] | None = None
    """Capabilities of the chat template."""
    tools_in: str | None = None
    """Where tools are described: `template`, or `system message` if the chat template shows none."""
    model_ftype: str | None = None
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
