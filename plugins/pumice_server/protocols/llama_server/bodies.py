"""Bodies of requests of llama-server's protocol."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from msgspec import Meta, Struct, field

from pumice_server.field_types import (
    EUCLIDEAN,
    Dimensions,
    EmbeddingInput,
    Name,
    NChoices,
    Norm,
    NProbs,
    Object,
    Position,
    Priority,
    Prompt,
    Texts,
    TextsAndIds,
    refused,
)
from pumice_server.interface import Body, ModelBody, TextBody
from pumice_server.limits import MAX_IDS, MAX_TEXTS


class StreamLookupBody(Body, kw_only=True):
    """Conversations whose streams are looked for."""

    conversation_ids: Annotated[list[Name], Meta(max_length=MAX_TEXTS)]
    """Ids of the conversations, as in `X-Conversation-Id`."""


class ToolBody(Body, kw_only=True):
    """A call of a tool that the server runs."""

    tool: Name
    """Name of the tool."""
    params: Object = {}
    """Arguments of the call."""


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
    truncate: bool = False
    """Cut documents that do not fit the context beside the query."""
    priority: Priority = 0
    """Requests of the lowest number run first."""


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

    tokens: Annotated[list[int], Meta(max_length=MAX_IDS)] = field(default_factory=list)
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
