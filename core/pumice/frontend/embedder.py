"""Embeddings and reranking: texts to vectors and scores."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, get_args

from pumice.engine.messages import Encode, Pooling, Terms, check_adapters
from pumice.engine.requests.arguments import check_switch
from pumice.errors import PromptTooLongError, RequestError
from pumice.frontend.answer import Answer
from pumice.frontend.engine import ModelEngine, check_open
from pumice.frontend.media import Media, Texts, check_text
from pumice.wording import show_python

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Rows = NDArray[np.float32]
Adapters = Mapping[str, float] | None

POOLINGS = get_args(Pooling)
_OF_FILE: tuple[Pooling | None, ...] = ("none", "mean", "cls", "last", None)  # by GGUF's pooling_type; 4 ranks texts
_RANKS = 4
SHORTEST = 1e-12  # length of a vector that is divided by it; shorter ones stay shorter
_RERANK_TEMPLATE = "tokenizer.chat_template.rerank"


class Embedder:
    """Embeds and ranks texts, with encoders or with the hidden states of decoders."""

    def __init__(self, engine: ModelEngine, media: Media) -> None:
        self._engine = engine
        self._media = media
        self._metadata = engine.file.metadata
        self._key = f"{self._metadata.get('general.architecture', '')}.".__add__

    @property
    def pooling(self) -> Pooling:
        """Pooling of the file; without one the last token for causal models, the mean for bidirectional ones."""
        index = self._metadata.get(self._key("pooling_type"), _RANKS)
        pooling = _OF_FILE[index] if isinstance(index, int) and 0 <= index < len(_OF_FILE) else None
        return pooling or ("last" if self._is_causal else "mean")

    def embed(
        self,
        texts: Texts,
        normalize: bool,
        dimensions: int | None,
        pooling: Pooling | None,
        adapters: Adapters,
        terms: Terms,
        truncate: bool,
    ) -> Answer[Rows | list[Rows]]:
        """Return the answer of ``Model.embed``."""

        def begin() -> Future[Sequence[Rows]]:
            check_open(self._engine)
            check_switch("normalize", normalize)
            check_switch("truncate", truncate)
            n_embd = self._engine.facts.n_embd
            if not n_embd:
                raise RequestError("this model gives no embeddings: its architecture has no output named hidden")
            if pooling is not None and pooling not in POOLINGS:
                raise RequestError(f"pooling must be one of {', '.join(POOLINGS)}, not {show_python(pooling)}")
            if dimensions is not None and (type(dimensions) is not int or not 1 <= dimensions <= n_embd):
                raise RequestError(
                    f"dimensions must be an integer from 1 to the model's {n_embd}, not {show_python(dimensions)}"
                )
            read = self._media.prepare(texts, truncate)
            media = [text.media for text in read] if any(text.media for text in read) else []
            ids = [text.tokens for text in read]
            check_adapters(adapters)
            chosen = pooling or self.pooling
            return self._engine.client.ask(Encode, ids, chosen, False, adapters, media, terms=terms)

        return Answer(begin, lambda values: self._cut(values, normalize, dimensions))

    def rank(
        self, query: str, documents: Sequence[str], adapters: Adapters, terms: Terms, truncate: bool
    ) -> Answer[list[float]]:
        """Return the answer of ``Model.rerank``."""

        def begin() -> Future[Sequence[Rows]]:
            check_open(self._engine)
            check_switch("truncate", truncate)
            if not self._engine.facts.n_labels:
                raise RequestError("this model does not rank texts: its file has no classifier (cls, cls.output)")
            listed = isinstance(documents, Sequence) and not isinstance(documents, str)
            if not isinstance(query, str) or not listed or not all(isinstance(document, str) for document in documents):
                raise RequestError("rerank takes a query and a list of documents, all of them strings")
            pairs = [check_text(self._engine, pair) for pair in self._pairs(query, documents, truncate)]
            check_adapters(adapters)
            pooling = self._pooling_of_scores
            return self._engine.client.ask(Encode, pairs, pooling, True, adapters, terms=terms)

        return Answer(begin, lambda values: [float(scores[0]) for scores in values])

    def _cut(self, values: Sequence[Rows], normalize: bool, dimensions: int | None) -> Rows | list[Rows]:
        """Return vectors cut to ``dimensions``: float32 ``[n, dimensions]``, or a list of those of tokens."""
        import numpy as np

        cut = [rows[..., :dimensions] for rows in values]
        if normalize:
            cut = [rows / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), SHORTEST) for rows in cut]
        if values and values[0].ndim == 2:
            return cut
        return np.array(cut, np.float32).reshape(len(values), dimensions or self._engine.facts.n_embd)

    @property
    def _is_causal(self) -> bool:
        facts = self._engine.facts
        return bool(self._metadata.get(self._key("attention.causal"), facts.generates and not facts.fills_masks))

    @property
    def _pooling_of_scores(self) -> Pooling:
        """Pooling of the classifier: the first token, the last of causal models, by default ModernBERT's mean."""
        is_mean = self._metadata.get("general.architecture") == "modern-bert"
        if self._metadata.get(self._key("classifier.pooling_type"), 1 if is_mean else 0) == 1:
            return "mean"
        return "last" if self._is_causal else "cls"

    def _pairs(self, query: str, documents: Sequence[str], truncate: bool) -> list[list[int]]:
        """Return the tokens of a query with each document; ``truncate`` cuts those that do not fit beside the query.

        Raises:
            PromptTooLongError: The query leaves no room for a document that is cut.
        """
        n_ctx = self._engine.facts.n_ctx
        most = n_ctx * self._engine.tokenizer().longest if truncate else None
        pairs = [self._laid_out(query, document[:most]) for document in documents]
        if not truncate or all(len(pair) <= n_ctx for pair in pairs):
            return pairs
        if (n_tokens := len(self._laid_out(query, ""))) >= n_ctx:
            raise PromptTooLongError(n_tokens, n_ctx)
        end = self._end(query)
        return [pair if len(pair) <= n_ctx else [*pair[: n_ctx - len(end)], *end] for pair in pairs]

    def _laid_out(self, query: str, document: str) -> list[int]:
        """Return the tokens of a pair, by the file's template or one after the other."""
        tokenizer, template = self._engine.tokenizer(), self._metadata.get(_RERANK_TEMPLATE)
        if isinstance(template, str):
            return tokenizer.tokenize(_filled(template, query, document), add_special=False)
        before = [tokenizer.bos] if tokenizer.add_bos else []
        between = [tokenizer.sep] if tokenizer.add_sep else []
        a, b = (tokenizer.tokenize(text, add_special=False, parse_special=False) for text in (query, document))
        end = self._end(query)
        return [id for id in [*before, *a, *end, *between, *b, *end] if id is not None]

    def _end(self, query: str) -> list[int]:
        """Return the tokens behind the document of a pair."""
        tokenizer, template = self._engine.tokenizer(), self._metadata.get(_RERANK_TEMPLATE)
        if isinstance(template, str):
            return tokenizer.tokenize_following(_filled(template.rpartition("{document}")[2], query))
        eos = tokenizer.eos if tokenizer.eos is not None else tokenizer.sep
        return [eos] if tokenizer.add_eos and eos is not None else []


def _filled(template: str, query: str, document: str = "") -> str:
    texts = {"{query}": query, "{document}": document}
    return re.sub(r"\{query\}|\{document\}", lambda match: texts[match[0]], template)
