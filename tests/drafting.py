"""Proposers that are right, wrong, or both by turns, for tests of speculative decoding."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from pumice.engine.drafts.speculation import Speculation
from pumice.engine.loop.flight import Flight
from pumice.proposers import Proposer, ProposerContext
from pumice.proposers.llama_ngrams import NgramCache, NgramMapK, NgramMapK4V, NgramMod, NgramSimple
from pumice.proposers.ngram import Ngram

Texts = Mapping[tuple[int, ...], Sequence[int]]
"""What comes after each prompt."""


@dataclass
class Oracle(Proposer):
    """Knows what comes, and says something else now and then."""

    texts: ClassVar[Texts] = {}
    wrong: float = 0.0  # of its tokens
    silent: float = 0.0  # of its turns
    vary: bool = False  # drafts of any length

    def start(self, context: ProposerContext) -> None:
        self._prompt: tuple[int, ...] = ()
        self._n = 0
        self._n_vocab = context.n_vocab
        self._random = np.random.default_rng(0)
        self.judged: list[tuple[int, int]] = []

    def accept(self, tokens: Sequence[int]) -> None:
        if not self._prompt:
            self._prompt = tuple(tokens)
        else:
            self._n += len(tokens)

    def propose(self, n: int) -> Sequence[int]:
        if self._random.random() < self.silent:
            return []
        n = int(self._random.integers(n + 1)) if self.vary else n
        coming = list(self.texts.get(self._prompt, [])[self._n : self._n + n])
        lies = self._random.random(len(coming)) < self.wrong
        return [(t + 1) % self._n_vocab if lie else t for t, lie in zip(coming, lies, strict=True)]

    def judge(self, tokens: Sequence[int], n_accepted: int) -> None:
        self.judged.append((len(tokens), n_accepted))


PROPOSERS: dict[str, Callable[[], Proposer]] = {
    "oracle": Oracle,
    "liar": lambda: Oracle(wrong=1.0),
    "erring": lambda: Oracle(wrong=0.2, silent=0.3, vary=True),
    "ngram": Ngram,
    "ngram-simple": lambda: NgramSimple(size_n=2),
    "ngram-map-k": lambda: NgramMapK(size_n=2),
    "ngram-map-k4v": lambda: NgramMapK4V(size_n=2),
    "ngram-cache": NgramCache,
    "ngram-mod": lambda: NgramMod(size_n=2, n_min=2),
}


def drafting(name: str, n_draft: int = 7) -> Speculation:
    """Speculation by one of ``PROPOSERS`` that verifies so many tokens, whatever the clock says."""
    return Speculation(PROPOSERS, default=name, n_draft=n_draft)


def verify_on_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail where the host verifies drafts."""
    take = Flight.take

    def taking(self: Flight, following: Flight | None) -> None:
        assert self.ask or not self.drafts
        take(self, following)

    monkeypatch.setattr(Flight, "take", taking)
