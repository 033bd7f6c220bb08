"""Endpoints for embeddings (OpenAI, llama-server, Ollama) and for ranking documents by a query."""

from __future__ import annotations

import base64

import numpy as np
from numpy.typing import NDArray
from starlette.requests import Request

from pumice_server.answer_types import Usage
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
from pumice_server.protocols.openai.answer_types import Embedding, EmbeddingList
from pumice_server.protocols.openai.bodies import EmbeddingsBody


async def embeddings(request: Request, body: EmbeddingsBody) -> Whole[EmbeddingList]:
    """Embed texts, in OpenAI's format."""
    service = await service_of(request, body.model)
    texts = await read_texts(body, service, body.input, "input", truncate=body.truncate)
    vectors = await unless_gone(
        request, embed_texts(service, texts, body.embd_normalize, body.dimensions, body.priority)
    )

    def told() -> EmbeddingList:
        encode = _encoded if body.encoding_format == "base64" else lambda vector: vector
        data = [Embedding(object="embedding", index=i, embedding=encode(vector)) for i, vector in enumerate(vectors)]
        n_tokens = count_tokens(texts)
        usage = Usage(prompt_tokens=n_tokens, total_tokens=n_tokens)
        return EmbeddingList(object="list", model=service.name, data=data, usage=usage)

    return await make_answer(told, vectors_size(vectors))


def _encoded(vector: NDArray[np.float32]) -> str:
    """Encode a vector as little-endian float32 in Base64, as OpenAI's clients expect."""
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()
