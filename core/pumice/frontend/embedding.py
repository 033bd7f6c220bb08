"""Embeddings and reranking: texts to vectors and scores."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args, overload

from pumice.chat.mixed import MEDIA, Media
from pumice.config import Config
from pumice.engine import EngineClient
from pumice.engine.messages import Facts, Pooling, PreparedText, Span
from pumice.engine.requests.arguments import adapter_scales, check_ids, check_switch, token_ids
from pumice.errors import ModelClosedError, PromptTooLongError, RequestError
from pumice.frontend.base import Base
from pumice.options import REQUEST
from pumice.tokenizers import Tokenizer
from pumice.tracebacks import short_traceback
from pumice.wording import show_python

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Rows = NDArray[np.float32]
Text = str | Sequence[int] | Media | Sequence[str | Media] | PreparedText
"""A text, its token ids, an image or a sound, or several of them in order."""
Texts = str | Media | Sequence[Text]
ReadMixed = Callable[[Sequence[str | Media]], tuple[list[int], list[Span]]]
"""Returns the token ids of texts and media, and the media; see ``Base._read_mixed``."""
Adapters = Mapping[str, float] | None

POOLINGS = get_args(Pooling)
WRONG_TEXT = "an input to embed must be a text, a list of token ids, an image or sound, or a list of texts and these"
_OF_FILE: tuple[Pooling | None, ...] = ("none", "mean", "cls", "last", None)  # by GGUF's pooling_type; 4 ranks texts
_RANKS = 4
SHORTEST = 1e-12  # length of a vector that is divided by it; shorter ones stay shorter
_RERANK_TEMPLATE = "tokenizer.chat_template.rerank"


class EmbeddingModel(Protocol):
    """The attributes of a model that ``Embedder`` reads."""

    client: EngineClient
    config: Config
    facts: Facts

    @property
    def metadata(self) -> Mapping[str, Any]: ...

    @property
    def tokenizer(self) -> Tokenizer: ...


class Embedder:
    """Embeds and ranks texts with a model."""

    def __init__(self, model: EmbeddingModel, read_mixed: ReadMixed) -> None:
        self._model = model
        self._read_mixed = read_mixed
        architecture = model.metadata.get("general.architecture", "")
        self._key = f"{architecture}.".__add__
        writes = model.facts.generates and not model.facts.fills_masks
        self._is_causal = bool(model.metadata.get(self._key("attention.causal"), writes))

    @property
    def pooling(self) -> Pooling:
        """Pooling of the file; without one the last token for causal models, the mean for bidirectional ones."""
        index = self._model.metadata.get(self._key("pooling_type"), _RANKS)
        pooling = _OF_FILE[index] if isinstance(index, int) and 0 <= index < len(_OF_FILE) else None
        return pooling or ("last" if self._is_causal else "mean")

    def embed(
        self,
        texts: Texts,
        pooling: Pooling | None,
        dimensions: int | None,
        adapters: Adapters,
        priority: int = 0,
        truncate: bool = False,
    ) -> Future[Sequence[Rows]]:
        """Submit texts, and return the future of the engine's vectors, which ``finish`` takes."""
        n_embd = self._model.facts.n_embd
        if not n_embd:
            raise RequestError("this model gives no embeddings: its architecture has no output named hidden")
        if pooling is not None and pooling not in POOLINGS:
            raise RequestError(f"pooling must be one of {', '.join(POOLINGS)}, not {show_python(pooling)}")
        if dimensions is not None and (type(dimensions) is not int or not 1 <= dimensions <= n_embd):
            raise RequestError(
                f"dimensions must be an integer from 1 to the model's {n_embd}, not {show_python(dimensions)}"
            )
        read = [self.read(text, truncate) for text in _listed(texts)]
        media = [text.media for text in read] if any(text.media for text in read) else []
        ids, scales = [text.tokens for text in read], self._scales(adapters)
        REQUEST["priority"].check(priority)
        return self._model.client.encode(
            ids, pooling or self.pooling, adapter_scales=scales, media=media, priority=priority
        )

    def finish(self, values: Sequence[Rows], normalize: bool, dimensions: int | None) -> Rows | list[Rows]:
        """Return vectors cut to ``dimensions``: float32 ``[n, dimensions]``, or a list of those of tokens."""
        import numpy as np

        cut = [rows[..., :dimensions] for rows in values]
        if normalize:
            cut = [rows / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), SHORTEST) for rows in cut]
        if values and values[0].ndim == 2:
            return cut
        return np.array(cut, np.float32).reshape(len(values), dimensions or self._model.facts.n_embd)

    def rank(
        self, query: str, documents: Sequence[str], adapters: Adapters, priority: int = 0
    ) -> Future[Sequence[Rows]]:
        """Submit pairs of the query and each document, and return the future of the engine's scores."""
        if not self._model.facts.n_labels:
            raise RequestError("this model does not rank texts: its file has no classifier (cls, cls.output)")
        listed = isinstance(documents, Sequence) and not isinstance(documents, str)
        if not isinstance(query, str) or not listed or not all(isinstance(document, str) for document in documents):
            raise RequestError("rerank takes a query and a list of documents, all of them strings")
        pairs = [self._checked(self._pair(query, document)) for document in documents]
        REQUEST["priority"].check(priority)
        return self._model.client.encode(
            pairs, self._pooling_of_scores, True, self._scales(adapters), priority=priority
        )

    def _scales(self, adapters: Adapters) -> tuple[float, ...]:
        return adapter_scales(self._model.config.adapter_scales, adapters)

    @property
    def _pooling_of_scores(self) -> Pooling:
        """Pooling of the classifier: the first token, the last of causal models, by default ModernBERT's mean."""
        is_mean = self._model.metadata.get("general.architecture") == "modern-bert"
        if self._model.metadata.get(self._key("classifier.pooling_type"), 1 if is_mean else 0) == 1:
            return "mean"
        return "last" if self._is_causal else "cls"

    def _pair(self, query: str, document: str) -> list[int]:
        """Return the tokens of a query and a document, by the file's template or one after the other."""
        tokenizer, template = self._model.tokenizer, self._model.metadata.get(_RERANK_TEMPLATE)
        if isinstance(template, str):
            texts = {"{query}": query, "{document}": document}
            text = re.sub(r"\{query\}|\{document\}", lambda match: texts[match[0]], template)
            return tokenizer.tokenize(text, add_special=False)
        eos = tokenizer.eos if tokenizer.eos is not None else tokenizer.sep
        before = [tokenizer.bos] if tokenizer.add_bos else []
        end = [eos] if tokenizer.add_eos else []
        between = [tokenizer.sep] if tokenizer.add_sep else []
        a, b = (tokenizer.tokenize(text, add_special=False, parse_special=False) for text in (query, document))
        return [id for id in [*before, *a, *end, *between, *b, *end] if id is not None]

    def read(self, text: Text, truncate: bool = False) -> PreparedText:
        """Return the token ids and the media of a text; ``truncate`` cuts one without media to the context."""
        if isinstance(text, PreparedText):
            self._checked(list(text.tokens))
            return text
        if isinstance(text, str):
            return PreparedText(self._checked(self._cut(text) if truncate else self._model.tokenizer.tokenize(text)))
        parts = [text] if isinstance(text, MEDIA) else text
        if not isinstance(parts, (list, tuple)) or not any(isinstance(part, (str, *MEDIA)) for part in parts):
            ids = token_ids(parts, WRONG_TEXT)
            return PreparedText(self._checked(ids[: self._model.facts.n_ctx] if truncate else ids))
        mixed: list[str | Media] = []
        for part in parts:
            if not isinstance(part, (str, *MEDIA)):
                raise RequestError(f"{WRONG_TEXT}, not {show_python(part)}")
            mixed.append(part)
        ids, spans = self._read_mixed(mixed)
        return PreparedText(self._checked(ids), spans)

    def _cut(self, text: str) -> list[int]:
        """Return the tokens of a text that fit the context, with those that the model expects at both ends."""
        n_ctx, tokenizer = self._model.facts.n_ctx, self._model.tokenizer
        ids, around = tokenizer.tokenize(text[: n_ctx * tokenizer.longest]), tokenizer.tokenize("")
        if len(ids) <= n_ctx:
            return ids
        end = next(end for end in (around[i:] for i in range(len(around) + 1)) if ids[len(ids) - len(end) :] == end)
        return [*ids[: n_ctx - len(end)], *end]

    def _checked(self, ids: list[int]) -> list[int]:
        check_ids(ids, self._model.facts.n_vocab)
        if not ids:
            raise RequestError("a text to embed has no tokens: give some text")
        if len(ids) > self._model.facts.n_ctx:
            raise PromptTooLongError(len(ids), self._model.facts.n_ctx)
        return ids


def _listed(texts: Texts) -> list[Text]:
    if isinstance(texts, (str, *MEDIA)):
        return [texts]
    if not isinstance(texts, Sequence):
        raise RequestError(f"embed takes a text or a list of texts, not {type(texts).__name__}")
    return list(texts)


class Embedding(Base):
    """Embeddings and reranking, with encoders or with the hidden states of decoders."""

    @overload
    def embed(
        self,
        texts: Texts,
        *,
        normalize: bool = True,
        dimensions: int | None = None,
        pooling: Literal["none"],
        adapters: Mapping[str, float] | None = None,
        priority: int = 0,
        truncate: bool = False,
    ) -> list[Rows]: ...

    @overload
    def embed(
        self,
        texts: Texts,
        *,
        normalize: bool = True,
        dimensions: int | None = None,
        pooling: Literal["mean", "cls", "last"] | None = None,
        adapters: Mapping[str, float] | None = None,
        priority: int = 0,
        truncate: bool = False,
    ) -> Rows: ...

    @short_traceback
    def embed(
        self,
        texts: Texts,
        *,
        normalize: bool = True,
        dimensions: int | None = None,
        pooling: Pooling | None = None,
        adapters: Mapping[str, float] | None = None,
        priority: int = 0,
        truncate: bool = False,
    ) -> Rows | list[Rows]:
        """Return the embeddings of texts.

        Args:
            texts: Texts, or lists of token ids; with a model that sees or hears also ``pumice.Image`` and
                ``pumice.Audio``. A list of texts, images and sounds within the list is one input.
            normalize: Scale each vector to length 1.
            dimensions: Keep only this many of the first values, for models trained for that; None keeps all.
            pooling: Which hidden states become the vector: "mean", "cls" or "last". None follows the model's file, else
                the last state of a decoder and the mean of an encoder. "none" returns the states of all tokens.
            adapters: Scale of each adapter by name; None as configured.
            priority: Requests with a higher one come first.
            truncate: Cut texts and token ids that are longer than the context, instead of raising RequestError.

        Returns:
            float32 ``[n, n_embd]``; without pooling, as "none" or the file says, a list of float32
            ``[n_tokens, n_embd]``.

        Raises:
            RequestError: The model has no embeddings, a text does not fit, or an argument is wrong.
        """
        check_switch("normalize", normalize)
        check_switch("truncate", truncate)
        with self._waiting(self._embedder.embed(texts, pooling, dimensions, adapters, priority, truncate)) as values:
            return self._embedder.finish(values, normalize, dimensions)

    @short_traceback
    def prepare_embed(self, texts: Texts, truncate: bool = False) -> list[PreparedText]:
        """Tokenize texts, and encode their images and sounds, without embedding them.

        Pass the result to ``embed`` or ``aembed`` in place of the texts; any thread may prepare it.

        Args:
            texts: As in ``embed``.
            truncate: As in ``embed``.

        Raises:
            RequestError: A text does not fit, or an image or a sound cannot be read.
        """
        return [self._embedder.read(text, truncate) for text in _listed(texts)]

    @overload
    async def aembed(
        self,
        texts: Texts,
        *,
        normalize: bool = True,
        dimensions: int | None = None,
        pooling: Literal["none"],
        adapters: Mapping[str, float] | None = None,
        priority: int = 0,
        truncate: bool = False,
    ) -> list[Rows]: ...

    @overload
    async def aembed(
        self,
        texts: Texts,
        *,
        normalize: bool = True,
        dimensions: int | None = None,
        pooling: Literal["mean", "cls", "last"] | None = None,
        adapters: Mapping[str, float] | None = None,
        priority: int = 0,
        truncate: bool = False,
    ) -> Rows: ...

    @short_traceback
    async def aembed(
        self,
        texts: Texts,
        *,
        normalize: bool = True,
        dimensions: int | None = None,
        pooling: Pooling | None = None,
        adapters: Mapping[str, float] | None = None,
        priority: int = 0,
        truncate: bool = False,
    ) -> Rows | list[Rows]:
        """Like ``embed``, for a coroutine."""
        from asyncio import to_thread, wrap_future

        check_switch("normalize", normalize)
        check_switch("truncate", truncate)
        values = await wrap_future(
            await to_thread(self._embedder.embed, texts, pooling, dimensions, adapters, priority, truncate)
        )
        return await to_thread(self._embedder.finish, values, normalize, dimensions)

    @short_traceback
    def rerank(
        self,
        query: str,
        documents: Sequence[str],
        adapters: Mapping[str, float] | None = None,
        priority: int = 0,
    ) -> list[float]:
        """Score documents by their relevance for a query.

        Args:
            query: Text of the query.
            documents: Texts to score.
            adapters: Scale of each adapter by name; None as configured.
            priority: Requests with a higher one come first.

        Returns:
            A score for each document, in the order of ``documents``; higher is more relevant.

        Raises:
            RequestError: The model has no classifier, or a text does not fit the context.
        """
        with self._waiting(self._embedder.rank(query, documents, adapters, priority)) as values:
            return [float(scores[0]) for scores in values]

    @short_traceback
    async def arerank(
        self,
        query: str,
        documents: Sequence[str],
        adapters: Mapping[str, float] | None = None,
        priority: int = 0,
    ) -> list[float]:
        """Like ``rerank``, for a coroutine."""
        from asyncio import to_thread, wrap_future

        values = await wrap_future(await to_thread(self._embedder.rank, query, documents, adapters, priority))
        return [float(scores[0]) for scores in values]

    @cached_property
    def _embedder(self) -> Embedder:
        if self.closed:
            raise ModelClosedError("the model is closed")
        return Embedder(self, self._read_mixed)
