"""Embeddings as OpenAI, llama-server and Ollama have them, and documents ranked by how well they answer a query."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from pumice_server import logs
from pumice_server.answers import json_response, unless_gone
from pumice_server.body import Body
from pumice_server.errors import bad_request
from pumice_server.models import service_of
from pumice_server.prompts import MAX_IDS, prompt_string
from pumice_server.service import Service

MAX_TEXTS = 2048  # of one request
_EUCLIDEAN, _NONE, _LARGEST = 2, -1, 0  # values of embd_normalize beside other norms
_LARGEST_VALUE = 32760.0  # what the largest component becomes

Vectors = Sequence[NDArray[np.float32]]


async def embeddings(request: Request) -> Response:
    """``POST /v1/embeddings``."""
    body = await Body.read(request)
    service = await service_of(request, body.first("model"))
    form = body.get("encoding_format", str, "float")
    if form not in ("float", "base64"):
        raise bad_request("encoding_format must be float or base64")
    texts = await _tokens(service, body.first("input"), "input")
    found = await unless_gone(request, _embed(service, texts, body))
    data = [
        {"object": "embedding", "index": i, "embedding": _encoded(each) if form == "base64" else each.tolist()}
        for i, each in enumerate(found)
    ]
    return json_response({"object": "list", "model": service.name, "data": data, "usage": _usage(texts)})


async def native(request: Request) -> Response:
    """``POST /embedding``, ``/embeddings``."""
    body = await Body.read(request)
    service = await service_of(request, body.first("model"))
    texts = await _tokens(service, body.first("input", "content"), "content")
    found = await unless_gone(request, _embed(service, texts, body))
    return json_response([{"index": i, "embedding": [each.tolist()]} for i, each in enumerate(found)])


async def ollama(request: Request) -> Response:
    """``POST /api/embed``."""
    body = await Body.read(request)
    service = await service_of(request, body.first("model"))
    began = time.perf_counter()
    texts = await _tokens(service, body.fields.get("input", []), "input", at_least=0)
    if body.get("truncate", bool, True):
        texts = [tokens[: service.model.n_ctx] for tokens in texts]
    found = await unless_gone(request, _embed(service, texts, body)) if texts else []
    told = {"model": service.name, "embeddings": [each.tolist() for each in found]}
    spent = int((time.perf_counter() - began) * 1e9)
    return json_response({**told, "total_duration": spent, "load_duration": 0, "prompt_eval_count": _count(texts)})


async def ollama_one(request: Request) -> Response:
    """``POST /api/embeddings``, as Ollama had it first: one text, its vector as the model gives it."""
    body = await Body.read(request)
    service = await service_of(request, body.first("model"))
    prompt = body.get("prompt", str, "")
    if not prompt:
        return json_response({"embedding": []})
    texts = await _tokens(service, prompt, "prompt")
    (found,) = await unless_gone(request, _embed(service, texts, Body({"embd_normalize": _NONE})))
    return json_response({"embedding": found.tolist()})


async def rerank(request: Request) -> Response:
    """``POST /rerank``: as Jina has it, or with ``texts`` as TEI has it."""
    body = await Body.read(request)
    service = await service_of(request, body.first("model"))
    query, as_tei = body.first("query"), "texts" in body.fields
    documents = body.first("texts", "documents")
    if not isinstance(query, str):
        raise bad_request("query must be text")
    if not isinstance(documents, list) or not documents or not all(isinstance(each, str) for each in documents):
        raise bad_request("documents must be a list of texts")
    if len(documents) > MAX_TEXTS:
        raise bad_request(f"documents: at most {MAX_TEXTS}")
    top = body.integer("top_n", len(documents), 0, MAX_IDS)
    if not service.model.facts.n_labels:
        raise HTTPException(501, "this model does not rank texts: its file has no classifier")
    ranking = service.model.arerank(query, documents, service.adapters)
    scores = await unless_gone(request, service.in_time(ranking))
    order = sorted(range(len(scores)), key=lambda i: -scores[i])[:top]
    if as_tei:
        with_text = body.get("return_text", bool, False)
        texts = [{"text": documents[i]} if with_text else {} for i in order]
        return json_response([{"index": i, "score": scores[i], **text} for i, text in zip(order, texts, strict=True)])
    counted = await asyncio.gather(*(service.tokenize(each) for each in (query, *documents)))
    n_tokens = sum(map(len, counted[1:])) + len(counted[0]) * len(documents)
    logs.about(model=service.name, prompt_tokens=n_tokens)
    usage = {"prompt_tokens": n_tokens, "total_tokens": n_tokens}
    results = [{"index": i, "relevance_score": scores[i]} for i in order]
    return json_response({"model": service.name, "object": "list", "usage": usage, "results": results})


async def _embed(service: Service, texts: Sequence[list[int]], body: Body) -> Vectors:
    """A vector for each text, of the length that ``embd_normalize`` says: 2 is 1 as everywhere."""
    if not service.model.facts.n_embd:
        raise HTTPException(501, "this model gives no embeddings")
    norm = body.integer("embd_normalize", _EUCLIDEAN, _NONE, 1000)
    options = {"pooling": service.pooling, "dimensions": body.first("dimensions"), "adapters": service.adapters}
    found = await service.in_time(service.model.aembed(texts, normalize=norm == _EUCLIDEAN, **options))
    logs.about(model=service.name, prompt_tokens=_count(texts))
    return [_scaled(each, norm) for each in found] if norm not in (_EUCLIDEAN, _NONE) else list(found)


def _scaled(vector: NDArray[np.float32], norm: int) -> NDArray[np.float32]:
    size = np.abs(vector).max() / _LARGEST_VALUE if norm == _LARGEST else np.linalg.norm(vector, norm)
    return vector / np.float32(size) if size else vector


async def _tokens(service: Service, given: Any, name: str, at_least: int = 1) -> list[list[int]]:
    """Token ids of texts: of one, of token ids, or of a list of these."""
    given = prompt_string(given)
    single = isinstance(given, str) or (isinstance(given, list) and bool(given) and all(map(_is_id, given)))
    texts = [given] if single else given
    if not isinstance(texts, list) or not all(isinstance(each, (str, list)) for each in texts):
        raise bad_request(f"{name} must be text, a list of token ids, or a list of these")
    if not at_least <= len(texts) <= MAX_TEXTS:
        raise bad_request(f"{name}: {at_least} to {MAX_TEXTS} texts are embedded at once, not {len(texts)}")
    if any(len(each) > MAX_IDS or not all(map(_is_id, each)) for each in texts if isinstance(each, list)):
        raise bad_request(f"{name}: token ids are integers, at most {MAX_IDS}")
    return [await service.tokenize(each) if isinstance(each, str) else each for each in texts]


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _encoded(vector: NDArray[np.float32]) -> str:
    """As OpenAI's clients decode it: little-endian float32."""
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()


def _count(texts: Sequence[Sequence[int]]) -> int:
    return sum(map(len, texts))


def _usage(texts: Sequence[Sequence[int]]) -> dict[str, int]:
    return {"prompt_tokens": _count(texts), "total_tokens": _count(texts)}
