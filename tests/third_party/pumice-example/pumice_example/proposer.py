"""A proposer that guesses the last tokens once more."""

from collections.abc import Sequence
from dataclasses import dataclass

from pumice.plugin import Proposer, ProposerContext


@dataclass
class Again(Proposer):
    """Guess that the last ``period`` tokens are repeated."""

    period: int = 4

    def start(self, context: ProposerContext) -> None:
        self._text: list[int] = []

    def accept(self, tokens: Sequence[int]) -> None:
        self._text += tokens

    def propose(self, n: int) -> Sequence[int]:
        return self._text[-self.period :][:n]
