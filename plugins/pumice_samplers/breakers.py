"""Sequence breakers of DRY, as token sequences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

_MOST_CHARACTERS = 40
_MOST_TOKENS = 20


@dataclass(frozen=True)
class Breakers:
    """Where a repetition may not continue.

    Attributes:
        tails: head token -> the token sequences that may follow it to complete a breaker; () if the head
            contains one by itself.
        heads: bool [n_vocab], whether ``tails`` has the token.
        single: bool [n_vocab], whether the token contains a breaker by itself.
    """

    tails: dict[int, list[tuple[int, ...]]]
    heads: NDArray[np.bool_]
    single: NDArray[np.bool_]

    @classmethod
    def of(cls, strings: Sequence[str], tokenizer: Any, n_vocab: int) -> Breakers:
        """All token sequences that contain one of ``strings``; none without a tokenizer."""
        if tokenizer is None:
            return cls.build((), None, n_vocab)
        # Every word of the vocabulary is looked at, which is too slow to repeat for each sequence.
        known = _cache.setdefault(tokenizer, {})
        key = (tuple(strings), n_vocab)
        if key not in known:
            known[key] = cls.build(strings, tokenizer, n_vocab)
        return known[key]

    @classmethod
    def build(cls, strings: Sequence[str], tokenizer: Any, n_vocab: int) -> Breakers:
        tails: dict[int, list[tuple[int, ...]]] = {}
        texts = [text[:_MOST_CHARACTERS] for text in strings if text]
        for token in range(min(n_vocab, tokenizer.n_vocab)) if texts else ():
            word = tokenizer.detokenize([token], special=True)
            found = set().union(*(_completions(word, text, tokenizer) for text in texts))
            if found:
                tails[token] = sorted(found)
        heads, single = np.zeros((2, n_vocab), bool)
        heads[list(tails)] = True
        single[[head for head, sequences in tails.items() if () in sequences]] = True
        return cls(tails, heads, single)

    def distance(self, tokens: NDArray[np.int32]) -> int:
        """How many tokens follow the last breaker in ``tokens``."""
        for start in np.flatnonzero(self.heads[tokens])[::-1].tolist():
            after = tuple(tokens[start + 1 : start + 1 + _MOST_TOKENS].tolist())
            found = [len(tail) for tail in self.tails[int(tokens[start])] if after[: len(tail)] == tail]
            if found:
                return len(tokens) - 1 - start - max(found)
        return len(tokens)


def _completions(word: str, text: str, tokenizer: Any) -> set[tuple[int, ...]]:
    """What may follow ``word`` to contain ``text``: () for nothing, else the tokens of what its end lacks."""
    if text[0] not in word:
        return set()
    if text in word:
        return {()}
    cuts = [n for n in range(1, min(len(text), len(word) + 1)) if word.endswith(text[:n])]
    return {tuple(tokenizer.tokenize(text[n:], False, False)[:_MOST_TOKENS]) for n in cuts}


_cache: WeakKeyDictionary[Any, dict[tuple[tuple[str, ...], int], Breakers]] = WeakKeyDictionary()
