"""Embeddings and reranking: texts to vectors and scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from pumice.embedding import Embedder, Texts
from pumice.engine.messages import Pooling
from pumice.engine.prepare import check_switch
from pumice.errors import ModelClosedError
from pumice.frontend.base import Base


class Embedding(Base):
    """Embeds with encoders, and with decoders by their hidden states."""

    def embed(
        self,
        texts: Texts,
        *,
        normalize: bool = True,
        dimensions: int | None = None,
        pooling: Pooling | None = None,
        adapters: Mapping[str, float] | None = None,
    ) -> Any:
        """Texts, or lists of token ids, as vectors: float32 ``[n, n_embd]``, with one text too.

        Args:
            normalize: make each of length 1.
            dimensions: only so many of the first values, for models trained for that; None: all.
            pooling: "mean", "cls", "last": which hidden states count; None: as the model's file says, else the last of
                a decoder's and the mean of an encoder's. "none": a list with float32 ``[n_tokens, n_embd]`` for each.
            adapters: as in ``request``.

        Raises RequestError for a model that gives no embeddings, a text that does not fit or a wrong argument.
        """
        check_switch("normalize", normalize)
        with self._waiting(self._embedder.embed(texts, pooling, dimensions, adapters)) as values:
            return self._embedder.finish(values, normalize, dimensions)

    async def aembed(
        self,
        texts: Texts,
        *,
        normalize: bool = True,
        dimensions: int | None = None,
        pooling: Pooling | None = None,
        adapters: Mapping[str, float] | None = None,
    ) -> Any:
        """As ``embed``, for a coroutine."""
        from asyncio import to_thread, wrap_future

        check_switch("normalize", normalize)
        values = await wrap_future(await to_thread(self._embedder.embed, texts, pooling, dimensions, adapters))
        return await to_thread(self._embedder.finish, values, normalize, dimensions)

    def rerank(self, query: str, documents: Sequence[str], adapters: Mapping[str, float] | None = None) -> list[float]:
        """How well each document answers a query: the model's score, higher is better, in the order of ``documents``.

        Raises RequestError for a model without a classifier, or texts that do not fit.
        """
        with self._waiting(self._embedder.rank(query, documents, adapters)) as values:
            return [float(scores[0]) for scores in values]

    async def arerank(
        self, query: str, documents: Sequence[str], adapters: Mapping[str, float] | None = None
    ) -> list[float]:
        """As ``rerank``, for a coroutine."""
        from asyncio import to_thread, wrap_future

        values = await wrap_future(await to_thread(self._embedder.rank, query, documents, adapters))
        return [float(scores[0]) for scores in values]

    @cached_property
    def _embedder(self) -> Embedder:
        if self.closed:
            raise ModelClosedError("the model is closed")
        return Embedder(self)
