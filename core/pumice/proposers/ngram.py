"""The proposers ``ngram`` and ``prediction``: they copy what follows a match of the last tokens."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from annotated_types import Ge, Le

from pumice.proposers.contract import Proposer, ProposerContext
from pumice.proposers.index import BySalt, Index

SHORTEST = 2  # tokens of a match from which a prediction is followed again after a difference
MOST_SHARED = 1 << 18  # tokens of outputs, and bytes of their salts, that are kept for later sequences, about 4 MiB


@dataclass
class Ngram(Proposer):
    """Proposes the continuation of the longest match of the last tokens, in the sequence or in earlier outputs.

    Args:
        ngram_least: tokens of the shortest match.
    """

    ngram_least: Annotated[int, Ge(2), Le(32)] = 2

    def start(self, context: ProposerContext) -> None:
        self._index = Index(self.ngram_least)
        self._salt = context.salt
        self._n_prompt: int | None = None
        outputs: dict[int, BySalt[Index]] = context.shared.setdefault(Ngram, {})
        self._outputs = outputs.setdefault(self.ngram_least, BySalt(partial(Index, self.ngram_least), MOST_SHARED))

    def accept(self, tokens: Sequence[int]) -> None:
        self._index.extend(tokens)
        if self._n_prompt is None:
            self._n_prompt = len(tokens)

    def propose(self, n: int) -> Sequence[int]:
        text = self._index.tokens
        place, length = self._index.match(text)
        others = self._outputs.of(self._salt)
        if others:
            elsewhere, longer = others.match(text)
            if longer > length:
                return others.tokens[elsewhere : elsewhere + n].tolist()
        if not length:
            return []
        period = text[place : place + n].tolist()
        copies = -(-n // len(period))  # a match near the end continues with the proposed tokens themselves
        return (period * copies)[:n]

    def close(self) -> None:
        with self._outputs.growing(self._salt) as kept:
            kept.extend(self._index.tokens[self._n_prompt or 0 :])


class Prediction(Proposer):
    """Proposes the rest of a text that the answer is expected to resemble, such as a file to edit.

    After a token that differs, it continues behind the longest match of the last generated tokens.
    """

    def start(self, context: ProposerContext) -> None:
        self._index = Index(SHORTEST)
        self._index.extend(context.prediction)
        self._text: array[int] | None = None
        self._next = 0  # position in the prediction up to which all generated tokens were right

    def accept(self, tokens: Sequence[int]) -> None:
        if self._text is None:  # the prompt
            self._text = array("i")
            return
        for token in tokens:
            follows = self._next == len(self._text) and self._index.tokens[self._next : self._next + 1].tolist() == [
                token
            ]
            self._next += follows
            self._text.append(token)

    def propose(self, n: int) -> Sequence[int]:
        text = self._text or array("i")
        place = self._next
        if place < len(text):
            place, length = self._index.match(text)
            if not length:
                return []
        return self._index.tokens[place : place + n].tolist()
