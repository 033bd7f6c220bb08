"""llama-server's embeddings, and the ranking of documents by a query."""

from __future__ import annotations

import time

from starlette.exceptions import HTTPException
from starlette.requests import Request

from pumice_server.answer_types import Usage
from pumice_server.interface import (
    Whole,
    bad_request,
    embed_texts,
    make_answer,
    read_texts,
    service_of,
    unless_gone,
    vectors_size,
)
from pumice_server.protocols.llama_server.answer_types import NativeEmbedding, RankedDocument, Ranking
from pumice_server.protocols.llama_server.bodies import NativeEmbeddingsBody, RerankBody


async def native(request: Request, body: NativeEmbeddingsBody) -> Whole[list[NativeEmbedding]]:
    """Embed texts, in llama-server's format."""
    service = await service_of(request, body.model)
    content = body.content if body.input is None else body.input
    texts = await read_texts(body, service, content, "content", truncate=body.truncate)
    vectors = await unless_gone(request, embed_texts(service, texts, body.embd_normalize, body.dimensions))
    answer = [NativeEmbedding(index=i, embedding=[vector]) for i, vector in enumerate(vectors)]
    return await make_answer(lambda: answer, vectors_size(vectors))


async def rerank(request: Request, body: RerankBody) -> Ranking | list[RankedDocument]:
    """Rank documents by how well they answer a query, in Jina's format, or with ``texts`` in TEI's."""
    service = await service_of(request, body.model)
    query, as_tei = body.query, body.texts is not None
    documents = body.documents if body.texts is None else body.texts
    if not documents:
        raise bad_request("documents must be a list of texts")
    top = len(documents) if body.top_n is None else body.top_n
    if not service.model.facts.n_labels:
        raise HTTPException(501, "this model does not rank texts: its file has no classifier")
    tokenizer, n_ctx = service.model.tokenizer, service.model.n_ctx
    longest = n_ctx * tokenizer.longest if body.truncate else None

    def count() -> int:
        n_query = len(tokenizer.tokenize(query))
        n_tokens = 0
        for document in documents:
            tokenizer.check_fits([query, "" if body.truncate else document], n_ctx)
            n_tokens += min(n_query + len(tokenizer.tokenize(document[:longest])), n_ctx)
        return n_tokens

    n_tokens = await body.aside(count)
    began = time.monotonic()
    terms = service.terms(-body.priority)
    ranking = service.model.arerank(query, documents, service.adapters, truncate=body.truncate, **terms)
    scores = await unless_gone(request, ranking)
    service.note_encoded(n_tokens, began)
    order = sorted(range(len(scores)), key=lambda i: -scores[i])[:top]
    if as_tei:
        texts = documents if body.return_text else [None] * len(documents)
        return [RankedDocument(index=i, score=scores[i], text=texts[i]) for i in order]
    return Ranking(
        model=service.name,
        object="list",
        usage=Usage(prompt_tokens=n_tokens, total_tokens=n_tokens),
        results=[RankedDocument(index=i, relevance_score=scores[i]) for i in order],
    )
