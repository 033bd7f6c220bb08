"""Hidden states of layers over HTTP, for servers that allow them (`--hidden-states`)."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct
from starlette.exceptions import HTTPException
from starlette.requests import Request

from pumice_server import limits
from pumice_server.answer_types import Vector
from pumice_server.errors import bad_request
from pumice_server.field_types import EmbeddingInput, Name
from pumice_server.http.answers import Whole, make_answer, unless_gone
from pumice_server.http.bodies import ModelBody
from pumice_server.models.embedding import count_tokens, read_texts, vectors_size
from pumice_server.models.served_models import service_of

Layer = int | Name


class HiddenBody(ModelBody, kw_only=True):
    """Texts, and the layers whose rows are wanted."""

    input: EmbeddingInput
    """Text, token ids, or a list of these."""
    layers: Annotated[list[Layer], Meta(min_length=1, max_length=limits.MAX_LAYERS)]
    """Layers: `3` is the residual stream after layer 3; `"embeddings"`, `"3.attention"` and `"3.ffn"`."""


class TextStates(Struct, kw_only=True):
    """The hidden states of a text."""

    index: int
    layers: dict[str, list[Vector]]
    """A row for each token, by layer."""


class HiddenStates(Struct, kw_only=True):
    """Hidden states of texts."""

    model: str
    data: list[TextStates]


async def hidden_states(request: Request, body: HiddenBody) -> Whole[HiddenStates]:
    """Return the rows of layers for each token of texts, with `--hidden-states`."""
    if not request.app.state.settings.hidden_states:
        raise HTTPException(501, "hidden states are not served: start the server with --hidden-states")
    service = await service_of(request, body.model)
    texts = await read_texts(body, service, body.input, "input")
    if any(text.media for text in texts):
        raise bad_request("input: hidden states are those of texts without images and sound")
    n_values = count_tokens(texts) * len(body.layers) * service.model.facts.n_embd
    if n_values > limits.MAX_STATES:
        raise bad_request(f"layers: {n_values} values are too many; the limit is {limits.MAX_STATES}: ask for fewer")
    ids = [list(text.tokens) for text in texts]
    reading = service.model.ahidden(ids, body.layers, service.adapters, **service.terms())
    states = await unless_gone(request, reading)

    def told() -> HiddenStates:
        data = [
            TextStates(index=i, layers={str(layer): list(rows) for layer, rows in text.items()})
            for i, text in enumerate(states)
        ]
        return HiddenStates(model=service.name, data=data)

    return await make_answer(told, vectors_size([rows for text in states for rows in text.values()]))
