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
        """Return the embeddings of texts.

        Args:
            texts: Texts, or lists of token ids.
            normalize: Scale each vector to length 1.
            dimensions: Keep only this many of the first values, for models trained for that; None keeps all.
            pooling: Which hidden states become the vector: "mean", "cls" or "last". None follows the model's file, else
                the last state of a decoder and the mean of an encoder. "none" returns the states of all tokens.
            adapters: Scale of each adapter by name; None as configured.

        Returns:
            float32 ``[n, n_embd]``; with ``pooling="none"`` a list of float32 ``[n_tokens, n_embd]``.

        Raises:
            RequestError: The model has no embeddings, a text does not fit, or an argument is wrong.
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
        """Like ``embed``, for a coroutine."""
        from asyncio import to_thread, wrap_future

        check_switch("normalize", normalize)
        values = await wrap_future(await to_thread(self._embedder.embed, texts, pooling, dimensions, adapters))
        return await to_thread(self._embedder.finish, values, normalize, dimensions)

    def rerank(self, query: str, documents: Sequence[str], adapters: Mapping[str, float] | None = None) -> list[float]:
        """Return the model's score of each document for a query, in the order of ``documents``; higher is better.

        Raises RequestError for a model without a classifier, and for texts that do not fit.
        """
        with self._waiting(self._embedder.rank(query, documents, adapters)) as values:
            return [float(scores[0]) for scores in values]

    async def arerank(
        self, query: str, documents: Sequence[str], adapters: Mapping[str, float] | None = None
    ) -> list[float]:
        """Like ``rerank``, for a coroutine."""
        from asyncio import to_thread, wrap_future

        values = await wrap_future(await to_thread(self._embedder.rank, query, documents, adapters))
        return [float(scores[0]) for scores in values]

    @cached_property
    def _embedder(self) -> Embedder:
        if self.closed:
            raise ModelClosedError("the model is closed")
        return Embedder(self)
