"""Embeddings of texts and media, for every protocol."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from starlette.exceptions import HTTPException

import pumice
from pumice_server.errors import bad_request
from pumice_server.field_types import EUCLIDEAN
from pumice_server.http.body import Body
from pumice_server.limits import MAX_TEXTS
from pumice_server.models.model_texts import TextOrTokens
from pumice_server.models.prompts import is_mixed, media_prompt, mixed_tokens, prompt_string
from pumice_server.models.service import Service

_NUMBER_BYTES = 12  # as text
_NONE, _LARGEST = -1, 0  # values of embd_normalize beside norms
_WRONG_INPUT = " must be text, a list of token ids, an object with content, or a list of these"
_LARGEST_VALUE = 32760.0  # what the largest component becomes


Vectors = Sequence[NDArray[np.float32]]


async def embed_texts(
    service: Service,
    texts: Sequence[pumice.PreparedText],
    norm: int,
    dimensions: int | None = None,
    priority: int = 0,
) -> Vectors:
    """Return a vector for each text, whose norm of this order is 1."""
    if not service.model.facts.n_embd:
        raise HTTPException(501, "this model gives no embeddings")
    began = time.monotonic()
    vectors = await service.model.aembed(
        texts,
        normalize=norm == EUCLIDEAN,
        pooling=service.pooling,
        dimensions=dimensions,
        adapters=service.adapters,
        **service.terms(-priority),
    )
    service.note_encoded(count_tokens(texts), began)
    return [_scaled(vector, norm) for vector in vectors] if norm not in (EUCLIDEAN, _NONE) else list(vectors)


def _scaled(vector: NDArray[np.float32], norm: int) -> NDArray[np.float32]:
    peak = np.abs(vector).max()  # powers of what is at most 1 do not overflow
    size = peak / _LARGEST_VALUE if norm == _LARGEST else peak and peak * np.linalg.norm(vector / peak, norm)
    return vector / np.float32(size) if size else vector


async def read_texts(
    body: Body, service: Service, value: Any, name: str, at_least: int = 1, truncate: bool = False
) -> list[pumice.PreparedText]:
    """Return the token ids and media of one or several inputs; ``truncate`` keeps what fits the context.

    An input is text, token ids, or an object: a part of a message, a message with ``content``, or llama-server's.
    """
    inputs = await body.aside(_inputs, value, name, at_least)
    read = await body.aside(_tokens, service, [item for item in inputs if not isinstance(item, dict)], truncate)
    objects = [item for item in inputs if isinstance(item, dict)]
    prepared = await service.prepare_texts(objects) if objects else []
    texts, mixed = iter(map(pumice.PreparedText, read)), iter(prepared)
    return [next(mixed) if isinstance(item, dict) else next(texts) for item in inputs]


def _inputs(value: Any, name: str, at_least: int) -> list[TextOrTokens | dict[str, Any]]:
    """Return the inputs of a request; those that may have media are messages."""
    ids = isinstance(value, list) and bool(value) and all(map(_is_id, value))
    single = isinstance(value, (str, dict)) or ids or is_mixed(value)
    items = [value] if single else value
    if not isinstance(items, list):
        raise bad_request(f"{name}{_WRONG_INPUT}")
    if not at_least <= len(items) <= MAX_TEXTS:
        raise bad_request(f"{name}: {at_least} to {MAX_TEXTS} texts are embedded at once, not {len(items)}")
    return [_input(item, name) for item in items]


def _input(item: Any, name: str) -> TextOrTokens | dict[str, Any]:
    if isinstance(item, dict):
        if media := media_prompt(item):
            return {"content": list(media.parts)}
        if isinstance(item.get("content"), list):
            return {"content": item["content"]}
        if "type" in item:
            return {"content": [item]}
        item = item.get("content") or prompt_string(item)
    is_input = isinstance(item, str) or (isinstance(item, list) and (all(map(_is_id, item)) or is_mixed(item)))
    if not is_input:
        raise bad_request(f"{name}{_WRONG_INPUT}")
    return item


def _tokens(service: Service, texts: Sequence[TextOrTokens], truncate: bool) -> list[list[int]]:
    """Return the token ids of texts; ``truncate`` keeps what fits the context."""
    texts = [mixed_tokens(text, service, add_special=True) if is_mixed(text) else text for text in texts]
    if truncate:
        return [list(text.tokens) for text in service.model.media.prepare(texts, truncate)]
    return list(map(service.tokens_of, texts))


def _is_id(value: Any) -> bool:
    return isinstance(value, int)


def vectors_size(vectors: Vectors) -> int:
    """Return the approximate bytes of vectors as JSON."""
    return _NUMBER_BYTES * sum(vector.size for vector in vectors)


def count_tokens(texts: Sequence[pumice.PreparedText]) -> int:
    return sum(len(text.tokens) for text in texts)
