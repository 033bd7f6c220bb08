"""Embeddings as OpenAI, llama-server and Ollama have them, and documents ranked by how well they answer a query."""

from __future__ import annotations

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
from pumice_server.answers import json_response, make_answer, unless_gone
from pumice_server.body import Body
from pumice_server.errors import bad_request
from pumice_server.limits import MAX_IDS, MAX_TEXTS
from pumice_server.models import service_of
from pumice_server.prompts import prompt_string
from pumice_server.service import Service

_EUCLIDEAN, _NONE, _LARGEST = 2, -1, 0  # values of embd_normalize beside other norms
_NUMBER_BYTES = 12  # as text
_LARGEST_VALUE = 32760.0  # what the largest component becomes

Vectors = Sequence[NDArray[np.float32]]


async def embeddings(request: Request) -> Response:
    """``POST /v1/embeddings``."""
    body = await Body.read(request)
    service = await service_of(request, body.first("model"))
    form = body.get("encoding_format", str, "float")
    if form not in ("float", "base64"):
        raise bad_request("encoding_format must be float or base64")
    texts = await body.aside(_tokens, service, body.first("input"), "input")
    found = await unless_gone(request, _embed(service, texts, body))

    def told() -> dict[str, Any]:
        data = [
            {"object": "embedding", "index": i, "embedding": _encoded(each) if form == "base64" else each}
            for i, each in enumerate(found)
        ]
        return {"object": "list", "model": service.name, "data": data, "usage": _usage(texts)}

    return await make_answer(told, _size(found))


async def native(request: Request) -> Response:
    """``POST /embedding``, ``/embeddings``."""
    body = await Body.read(request)
    service = await service_of(request, body.first("model"))
    texts = await body.aside(_tokens, service, body.first("input", "content"), "content")
    found = await unless_gone(request, _embed(service, texts, body))
    return await make_answer(lambda: [{"index": i, "embedding": [each]} for i, each in enumerate(found)], _size(found))


async def ollama(request: Request) -> Response:
    """``POST /api/embed``."""
    body = await Body.read(request)
    service = await service_of(request, body.first("model"))
    began = time.perf_counter()
    given, cuts = body.first("input"), body.get("truncate", bool, True)
    texts = await body.aside(_tokens, service, [] if given is None else given, "input", 0, cuts)
    found = await unless_gone(request, _embed(service, texts, body)) if texts else []
    spent = int((time.perf_counter() - began) * 1e9)
    told = {"model": service.name, "embeddings": found, "total_duration": spent, "load_duration": 0}
    return await make_answer(lambda: {**told, "prompt_eval_count": _count(texts)}, _size(found))


async def ollama_one(request: Request) -> Response:
    """``POST /api/embeddings``, as Ollama had it first: one text, its vector as the model gives it."""
    body = await Body.read(request)
    service = await service_of(request, body.first("model"))
    prompt = body.get("prompt", str, "")
    if not prompt:
        return json_response({"embedding": []})
    texts = await body.aside(_tokens, service, prompt, "prompt")
    (found,) = await unless_gone(request, _embed(service, texts, Body({"embd_normalize": _NONE})))
    return json_response({"embedding": found})


async def rerank(request: Request) -> Response:
    """``POST /rerank``: as Jina has it, or with ``texts`` as TEI has it."""
    body = await Body.read(request)
    service = await service_of(request, body.first("model"))
    query, as_tei = body.first("query"), "texts" in body.fields
    documents = body.first("texts", "documents")
    if not isinstance(query, str):
        raise bad_request("query must be text")
    if not documents:
        raise bad_request("documents must be a list of texts")
    top = body.integer("top_n", len(documents))
    if not service.model.facts.n_labels:
        raise HTTPException(501, "this model does not rank texts: its file has no classifier")
    await body.aside(lambda: [service.model.check_fits([query, each]) for each in documents])
    ranking = service.model.arerank(query, documents, service.adapters)
    scores = await unless_gone(request, service.in_time(ranking))
    order = sorted(range(len(scores)), key=lambda i: -scores[i])[:top]
    if as_tei:
        with_text = body.get("return_text", bool, False)
        texts = [{"text": documents[i]} if with_text else {} for i in order]
        return json_response([{"index": i, "score": scores[i], **text} for i, text in zip(order, texts, strict=True)])
    counted = await service.read_prompts([query, *documents])
    n_tokens = sum(map(len, counted[1:])) + len(counted[0]) * len(documents)
    logs.about(model=service.name, prompt_tokens=n_tokens)
    usage = {"prompt_tokens": n_tokens, "total_tokens": n_tokens}
    results = [{"index": i, "relevance_score": scores[i]} for i in order]
    return json_response({"model": service.name, "object": "list", "usage": usage, "results": results})


async def _embed(service: Service, texts: Sequence[list[int]], body: Body) -> Vectors:
    """A vector for each text, of the length that ``embd_normalize`` says: 2 is 1 as everywhere."""
    if not service.model.facts.n_embd:
        raise HTTPException(501, "this model gives no embeddings")
    norm = body.integer("embd_normalize", _EUCLIDEAN)
    options = {"pooling": service.pooling, "dimensions": body.first("dimensions"), "adapters": service.adapters}
    found = await service.in_time(service.model.aembed(texts, normalize=norm == _EUCLIDEAN, **options))
    logs.about(model=service.name, prompt_tokens=_count(texts))
    return [_scaled(each, norm) for each in found] if norm not in (_EUCLIDEAN, _NONE) else list(found)


def _scaled(vector: NDArray[np.float32], norm: int) -> NDArray[np.float32]:
    peak = np.abs(vector).max()  # powers of what is at most 1 do not overflow
    size = peak / _LARGEST_VALUE if norm == _LARGEST else peak and peak * np.linalg.norm(vector / peak, norm)
    return vector / np.float32(size) if size else vector


def _tokens(service: Service, given: Any, name: str, at_least: int = 1, cuts: bool = False) -> list[list[int]]:
    """Token ids of texts: of one, of token ids, or of a list of these; ``cuts``: as many of each as fit."""
    given = prompt_string(given)
    single = isinstance(given, str) or (isinstance(given, list) and bool(given) and all(map(_is_id, given)))
    texts = [given] if single else given
    if not isinstance(texts, list) or not all(isinstance(each, (str, list)) for each in texts):
        raise bad_request(f"{name} must be text, a list of token ids, or a list of these")
    if not at_least <= len(texts) <= MAX_TEXTS:
        raise bad_request(f"{name}: {at_least} to {MAX_TEXTS} texts are embedded at once, not {len(texts)}")
    if any(len(each) > MAX_IDS or not all(map(_is_id, each)) for each in texts if isinstance(each, list)):
        raise bad_request(f"{name}: token ids are integers, at most {MAX_IDS}")
    if not cuts:
        return list(map(service.tokens_of, texts))
    n_ctx = service.model.n_ctx
    longest = n_ctx * service.model.tokenizer.longest  # characters that may matter
    return [(service.model.tokenize(each[:longest]) if isinstance(each, str) else each)[:n_ctx] for each in texts]


def _size(vectors: Vectors) -> int:
    """Bytes or so of vectors as JSON."""
    return _NUMBER_BYTES * sum(vector.size for vector in vectors)


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _encoded(vector: NDArray[np.float32]) -> str:
    """As OpenAI's clients decode it: little-endian float32."""
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()


def _count(texts: Sequence[Sequence[int]]) -> int:
    return sum(map(len, texts))


def _usage(texts: Sequence[Sequence[int]]) -> dict[str, int]:
    return {"prompt_tokens": _count(texts), "total_tokens": _count(texts)}
