"""Endpoints for embeddings (OpenAI, llama-server, Ollama) and for ranking documents by a query."""

from __future__ import annotations

import base64
import time
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

import pumice
from pumice_server.answer_types import (
    EmbeddingList,
    NativeEmbedding,
    OllamaEmbedding,
    OllamaEmbeddings,
    RankedDocument,
    Ranking,
)
from pumice_server.answers import json_response, make_answer, unless_gone
from pumice_server.bodies import EmbeddingsBody, NativeEmbeddingsBody, OllamaEmbedBody, OllamaEmbeddingBody, RerankBody
from pumice_server.body import Body
from pumice_server.errors import bad_request
from pumice_server.field_types import EUCLIDEAN
from pumice_server.limits import MAX_TEXTS
from pumice_server.model_texts import TextOrTokens
from pumice_server.models import service_of
from pumice_server.prompts import is_mixed, media_prompt, mixed_tokens, prompt_string
from pumice_server.service import Service

_NONE, _LARGEST = -1, 0  # values of embd_normalize beside norms
_NUMBER_BYTES = 12  # as text
_WRONG_INPUT = " must be text, a list of token ids, an object with content, or a list of these"
_LARGEST_VALUE = 32760.0  # what the largest component becomes

Vectors = Sequence[NDArray[np.float32]]


async def embeddings(request: Request, body: EmbeddingsBody) -> Annotated[Response, EmbeddingList]:
    """Embed texts, in OpenAI's form."""
    service = await service_of(request, body.model)
    texts = await _read(body, service, body.input, "input", truncate=body.truncate)
    vectors = await unless_gone(request, _embed(service, texts, body.embd_normalize, body.dimensions, body.priority))

    def told() -> dict[str, Any]:
        data = [
            {
                "object": "embedding",
                "index": i,
                "embedding": _encoded(vector) if body.encoding_format == "base64" else vector,
            }
            for i, vector in enumerate(vectors)
        ]
        return {"object": "list", "model": service.name, "data": data, "usage": _usage(texts)}

    return await make_answer(told, _size(vectors))


async def native(request: Request, body: NativeEmbeddingsBody) -> Annotated[Response, list[NativeEmbedding]]:
    """Embed texts, in llama-server's form."""
    service = await service_of(request, body.model)
    content = body.content if body.input is None else body.input
    texts = await _read(body, service, content, "content", truncate=body.truncate)
    vectors = await unless_gone(request, _embed(service, texts, body.embd_normalize, body.dimensions))
    answer = [{"index": i, "embedding": [vector]} for i, vector in enumerate(vectors)]
    return await make_answer(lambda: answer, _size(vectors))


async def ollama(request: Request, body: OllamaEmbedBody) -> Annotated[Response, OllamaEmbeddings]:
    """Embed texts, in Ollama's form."""
    service = await service_of(request, body.model)
    began = time.perf_counter()
    texts = await _read(body, service, body.input or [], "input", 0, body.truncate)
    vectors = await unless_gone(request, _embed(service, texts, EUCLIDEAN, body.dimensions)) if texts else []
    spent = int((time.perf_counter() - began) * 1e9)
    answer = {"model": service.name, "embeddings": vectors, "total_duration": spent, "load_duration": 0}
    return await make_answer(lambda: {**answer, "prompt_eval_count": _count(texts)}, _size(vectors))


async def ollama_one(request: Request, body: OllamaEmbeddingBody) -> Annotated[Response, OllamaEmbedding]:
    """Embed one text, in Ollama's older form: the vector is not normalized."""
    service = await service_of(request, body.model)
    if not body.prompt:
        return json_response({"embedding": []})
    texts = await _read(body, service, body.prompt, "prompt")
    (vector,) = await unless_gone(request, _embed(service, texts, _NONE))
    return json_response({"embedding": vector})


async def rerank(request: Request, body: RerankBody) -> Annotated[Response, Ranking | list[RankedDocument]]:
    """Rank documents by how well they answer a query, in Jina's form, or with ``texts`` in TEI's."""
    service = await service_of(request, body.model)
    query, as_tei = body.query, body.texts is not None
    documents = body.documents if body.texts is None else body.texts
    if not documents:
        raise bad_request("documents must be a list of texts")
    top = len(documents) if body.top_n is None else body.top_n
    if not service.model.facts.n_labels:
        raise HTTPException(501, "this model does not rank texts: its file has no classifier")
    tokenizer, n_ctx = service.model.tokenizer, service.model.n_ctx

    def check() -> None:
        for document in documents:
            tokenizer.check_fits([query, document], n_ctx)

    await body.aside(check)
    began = time.monotonic()
    ranking = service.model.arerank(query, documents, service.adapters, -body.priority)
    scores = await unless_gone(request, service.in_time(ranking))
    counted = await service.read_prompts([query, *documents])
    n_tokens = sum(map(len, counted[1:])) + len(counted[0]) * len(documents)
    service.note_encoded(n_tokens, began)
    order = sorted(range(len(scores)), key=lambda i: -scores[i])[:top]
    if as_tei:
        texts = [{"text": documents[i]} if body.return_text else {} for i in order]
        return json_response([{"index": i, "score": scores[i], **text} for i, text in zip(order, texts, strict=True)])
    usage = {"prompt_tokens": n_tokens, "total_tokens": n_tokens}
    results = [{"index": i, "relevance_score": scores[i]} for i in order]
    return json_response({"model": service.name, "object": "list", "usage": usage, "results": results})


async def _embed(
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
    vectors = await service.in_time(
        service.model.aembed(
            texts,
            normalize=norm == EUCLIDEAN,
            pooling=service.pooling,
            dimensions=dimensions,
            adapters=service.adapters,
            priority=-priority,
        )
    )
    service.note_encoded(_count(texts), began)
    return [_scaled(vector, norm) for vector in vectors] if norm not in (EUCLIDEAN, _NONE) else list(vectors)


def _scaled(vector: NDArray[np.float32], norm: int) -> NDArray[np.float32]:
    peak = np.abs(vector).max()  # powers of what is at most 1 do not overflow
    size = peak / _LARGEST_VALUE if norm == _LARGEST else peak and peak * np.linalg.norm(vector / peak, norm)
    return vector / np.float32(size) if size else vector


async def _read(
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


def _size(vectors: Vectors) -> int:
    """Return the approximate bytes of vectors as JSON."""
    return _NUMBER_BYTES * sum(vector.size for vector in vectors)


def _is_id(value: Any) -> bool:
    return isinstance(value, int)


def _encoded(vector: NDArray[np.float32]) -> str:
    """Encode a vector as little-endian float32 in Base64, as OpenAI's clients expect."""
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()


def _count(texts: Sequence[pumice.PreparedText]) -> int:
    return sum(len(text.tokens) for text in texts)


def _usage(texts: Sequence[pumice.PreparedText]) -> dict[str, int]:
    return {"prompt_tokens": _count(texts), "total_tokens": _count(texts)}
