"""llama.cpp's n-gram proposers, with its names and defaults, which use long matches only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pumice.proposers.contract import Proposer, ProposerContext
from pumice.proposers.index import BySalt, Index

_CONTINUATIONS = 4  # of an n-gram that ``ngram-map-k4v`` compares
_LEAST_COUNTS = (2, 2, 1, 1)  # of a continuation after 1, 2, 3 and 4 tokens, for ``ngram-cache``
_MOST_COUNTED = 1 << 16  # n-grams that ``ngram-cache`` counts, 20 to 25 MB, before it begins anew
_LEAST_SHARES = (0.66, 0.5, 0.5, 0.5)
MOST_KEYS = 1 << 20  # n-grams, and bytes of their salts, that ``ngram-mod`` keeps


@dataclass
class NgramSimple(Proposer):
    """``ngram-simple``: the ``size_m`` tokens after the latest occurrence of the last ``size_n`` tokens."""

    size_n: int = 12
    size_m: int = 48

    def start(self, context: ProposerContext) -> None:
        self._index = Index(self.size_n)

    def accept(self, tokens: Sequence[int]) -> None:
        self._index.extend(tokens)

    def propose(self, n: int) -> Sequence[int]:
        text = self._index.tokens
        place = next(self._index.occurrences(text), len(text))
        return text[place : place + min(n, self.size_m)].tolist()


@dataclass
class NgramMapK(NgramSimple):
    """``ngram-map-k``: like ``ngram-simple``, up to the number of tokens last accepted after the same n-gram."""

    def start(self, context: ProposerContext) -> None:
        super().start(context)
        self._right: dict[bytes, int] = {}
        self._proposed = b""

    def propose(self, n: int) -> Sequence[int]:
        self._proposed = self._index.tokens[-self.size_n :].tobytes()
        return super().propose(min(n, self._right.get(self._proposed, n)))

    def judge(self, tokens: Sequence[int], n_accepted: int) -> None:
        if n_accepted < len(tokens):
            self._right[self._proposed] = max(1, n_accepted)  # a draft of none could not be judged again


@dataclass
class NgramMapK4V(NgramSimple):
    """``ngram-map-k4v``: the most frequent continuation of the last ``size_n`` tokens, of at most four.

    It is proposed if it was seen at least twice as often as all others together.
    """

    def propose(self, n: int) -> Sequence[int]:
        text = self._index.tokens
        counts: dict[int, int] = {}  # by the first token of the continuation
        latest: dict[int, int] = {}
        for place in reversed(list(self._index.occurrences(text))):
            token = text[place]
            if token in counts or len(counts) < _CONTINUATIONS:
                counts[token] = counts.get(token, 0) + 1
                latest[token] = place
        if not counts:
            return []
        best = max(counts, key=lambda token: counts[token])
        if counts[best] < 2 * (sum(counts.values()) - counts[best]):
            return []
        return text[latest[best] : latest[best] + min(n, self.size_m)].tolist()


@dataclass
class NgramCache(Proposer):
    """``ngram-cache``: token by token the likeliest continuation of the last 4 to 1 tokens, where it is likely enough.

    The thresholds, least counts and shares by the length of the n-gram, are llama.cpp's for its context cache.
    """

    n_max: int = 8

    def start(self, context: ProposerContext) -> None:
        self._text: list[int] = []
        self._counts: dict[tuple[int, ...], dict[int, int]] = {}

    def accept(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            if len(self._counts) > _MOST_COUNTED:
                self._counts.clear()
            for n in range(1, min(len(_LEAST_COUNTS), len(self._text)) + 1):
                counts = self._counts.setdefault(tuple(self._text[-n:]), {})
                counts[token] = counts.get(token, 0) + 1
            self._text.append(token)

    def propose(self, n: int) -> Sequence[int]:
        window = self._text[-len(_LEAST_COUNTS) :]
        tokens: list[int] = []
        while len(tokens) < min(n, self.n_max) and (token := self._next(window)) is not None:
            tokens.append(token)
            window = [*window, token][-len(_LEAST_COUNTS) :]
        return tokens

    def _next(self, window: Sequence[int]) -> int | None:
        for n in range(len(window), 0, -1):
            counts = self._counts.get(tuple(window[-n:]), {})
            if counts:
                best = max(counts, key=lambda token: counts[token])
                share = counts[best] / sum(counts.values())
                if counts[best] >= _LEAST_COUNTS[n - 1] and share >= _LEAST_SHARES[n - 1]:
                    return best
        return None


@dataclass
class NgramMod(Proposer):
    """``ngram-mod``: a table, shared by sequences, of the token that last followed each n-gram of ``size_n`` tokens.

    Proposals have at least ``n_min`` tokens, or the maximum number requested if that is lower.
    """

    size_n: int = 24
    n_min: int = 48
    n_max: int = 64

    def start(self, context: ProposerContext) -> None:
        self._text: list[int] = []
        self._salt = context.salt
        self._tables: BySalt[dict[int, int]] = context.shared.setdefault(NgramMod, BySalt(dict, MOST_KEYS))

    def accept(self, tokens: Sequence[int]) -> None:
        first = max(len(self._text), self.size_n)  # the last n-gram of a text has no continuation yet
        self._text.extend(tokens)
        with self._tables.growing(self._salt) as following:
            for end in range(first, len(self._text)):
                following[hash(tuple(self._text[end - self.size_n : end]))] = self._text[end]

    def propose(self, n: int) -> Sequence[int]:
        n = min(n, self.n_max)
        following = self._tables.of(self._salt) or {}
        window = self._text[-self.size_n :]
        tokens: list[int] = []
        while len(tokens) < n and (token := following.get(hash(tuple(window)))) is not None:
            tokens.append(token)
            window = [*window[1:], token]
        return tokens if len(tokens) >= min(self.n_min, n) else []
