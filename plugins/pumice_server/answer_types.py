"""Answers, and parts of answers, that several protocols have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


if TYPE_CHECKING:
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
