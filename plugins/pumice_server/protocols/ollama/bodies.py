"""Bodies of requests of Ollama's protocol."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, field

from pumice.plugin.unstable import MAX_IMAGES
from pumice_server.field_types import (
    Blocks,
    Dimensions,
    EmbeddingInput,
    Grammar,
    Name,
    Natural,
    NLogprobs,
    Stop,
    Stops,
    Tools,
    Word,
    refused,
)
from pumice_server.interface import Body, Caching, Generation, ModelBody
from pumice_server.limits import MAX_FILES

KeepAlive = Annotated[float, Meta(ge=-1e9, le=1e9)] | Annotated[str, Meta(max_length=64)]
Digests = Annotated[dict[Name, Annotated[str, Meta(max_length=100)]], Meta(max_length=MAX_FILES)]


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


class OllamaGenerationBody(Caching):
    """Fields shared by Ollama's chat and generate."""

    model: Name | None = None
    """Name of the model (default: the first that is served)."""
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


class OllamaChatBody(OllamaGenerationBody):
    """Ollama's chat. Without messages the model is only loaded."""

    messages: Blocks = field(default_factory=list)
    """Messages of the chat, the oldest first: `role`, `content`, `thinking`, `tool_calls`, `tool_name`, and `images`,
    which are images and sounds in base64."""
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
    messages: Blocks = field(default_factory=list)
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
