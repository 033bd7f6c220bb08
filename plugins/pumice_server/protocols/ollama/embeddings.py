"""Ollama's embeddings."""

from __future__ import annotations

import time

from starlette.requests import Request

from pumice_server.field_types import EUCLIDEAN
from pumice_server.interface import (
    Whole,
    count_tokens,
    embed_texts,
    make_answer,
    read_texts,
    service_of,
    unless_gone,
    vectors_size,
)
from pumice_server.protocols.ollama.answer_types import OllamaEmbedding, OllamaEmbeddings
from pumice_server.protocols.ollama.bodies import OllamaEmbedBody, OllamaEmbeddingBody


async def ollama(request: Request, body: OllamaEmbedBody) -> Whole[OllamaEmbeddings]:
    """Embed texts, in Ollama's format."""
    service = await service_of(request, body.model)
    began = time.perf_counter()
    texts = await read_texts(body, service, body.input or [], "input", 0, body.truncate)
    vectors = await unless_gone(request, embed_texts(service, texts, EUCLIDEAN, body.dimensions)) if texts else []
    spent = int((time.perf_counter() - began) * 1e9)
    answer = OllamaEmbeddings(
        model=service.name,
        embeddings=list(vectors),
        total_duration=spent,
        load_duration=0,
        prompt_eval_count=count_tokens(texts),
    )
    return await make_answer(lambda: answer, vectors_size(vectors))


async def ollama_one(request: Request, body: OllamaEmbeddingBody) -> OllamaEmbedding:
    """Embed one text, in Ollama's older format: the vector is not normalized."""
    service = await service_of(request, body.model)
    if not body.prompt:
        return OllamaEmbedding(embedding=[])
    texts = await read_texts(body, service, body.prompt, "prompt")
    (vector,) = await unless_gone(request, embed_texts(service, texts, -1))
    return OllamaEmbedding(embedding=vector)
