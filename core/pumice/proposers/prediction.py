"""The proposer of a request's prediction: a text that the answer is expected to resemble, such as a file to edit."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from pumice.proposers.contract import Proposer, ProposerContext
from pumice.proposers.index import Index

_SHORTEST = 2  # tokens of a match from which the prediction is followed again after a difference


class Prediction(Proposer):
    """Proposes the rest of the predicted text.

    After a token that differs, it continues behind the longest match of the last generated tokens.
    """

    def start(self, context: ProposerContext) -> None:
        self._index = Index(_SHORTEST)
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
