"""Picking the next token on the device: what is asked of a program that takes several steps, and what it gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Int32Array = NDArray[np.int32]
    Float32Array = NDArray[np.float32]


@dataclass(frozen=True)
class Pick:
    """How a program picks one of the highest logits as a sequence's next token.

    Of the ``top_k`` highest, in descending order, equal ones by token id, stay the fewest that together have the
    probability ``top_p``, and of those the ones with at least ``min_p`` times the highest probability. Divided by
    ``temperature``, their softmax is summed up; the first sum above a given number from [0, 1) is that of the token.
    With a ``temperature`` of 0 it is the highest.

    Before all that logits are adjusted: ``biases`` are added to those of single tokens. Then the logit of a token that
    occurred ``count`` times in the last ``last_n`` is divided by ``repeat_penalty`` where it is above 0, else
    multiplied, and loses ``count * frequency_penalty + presence_penalty``. Where it is ``restricted`` each token has a
    ``Restriction``, and last come its biases and its mask.

    Without ``top_k`` it is not whole: samplers that say what to do follow. ``exact``: that is all that is to be done,
    so the token picked is the token. Else somebody looks at it again.
    """

    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    temperature: float = 1.0
    biases: tuple[tuple[int, float], ...] = ()
    last_n: int = 0
    repeat_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    restricted: bool = False
    exact: bool = True

    @property
    def adjusts(self) -> bool:
        """Whether any logit is adjusted."""
        return bool(self.biases) or self.last_n > 0 or self.restricted

    @property
    def only_truncates(self) -> bool:
        """Whether nothing is done to the ``top_k`` highest but to pick one."""
        return (self.top_p, self.min_p, self.temperature) == (1.0, 0.0, 1.0)

    @property
    def only_adjusts(self) -> bool:
        """Whether all logits are kept, some of them adjusted."""
        return not self.top_k and self.only_truncates

    @property
    def only_biases(self) -> bool:
        """Whether nothing is done to logits but to add biases."""
        return self == Pick(biases=self.biases)

    @property
    def raises(self) -> bool:
        """Whether any logit may become higher: the highest may then be none of those that were."""
        penalties = self.repeat_penalty >= 1 and self.frequency_penalty >= 0 and self.presence_penalty >= 0
        return not penalties or any(value > 0 for _, value in self.biases)

    def guessed(self) -> Pick:
        """The same, after which something is still to be done that lowers logits."""
        return replace(self, exact=False)

    def unadjusted(self) -> Pick:
        """The same without adjusting: a guess, where there is something to adjust."""
        return Pick(self.top_k, self.top_p, self.min_p, self.temperature, exact=self.exact and not self.adjusts)


@dataclass(frozen=True)
class Restriction:
    """What holds for a sequence's next token alone, and is known only when the one before it is.

    Logits of tokens that are not in the ``mask``, uint32 ``[ceil(n_vocab / 32)]``, a bit a token, become -inf; None:
    all may come. ``biases`` are added to those of single tokens, each of them once.
    """

    mask: NDArray[np.uint32] | None = None
    biases: Sequence[tuple[int, float]] = ()


@dataclass(frozen=True)
class Ask:
    """How the tokens of one step, or of several in a row, are to be picked.

    Attributes:
        picks: for each sequence; ``top_k`` is at most ``max_best``.
        numbers: float32 [n_steps, n_seqs], from [0, 1): what ``picks`` draw with. ``n_steps`` is a power of two.
        n_best: candidates wanted, at most ``max_best`` and the size of the vocabulary.
        pasts: where a pick adjusts, for each sequence the tokens that it looks back at, the latest last.
        n_raw: highest logits wanted as the model gave them, at most as ``n_best``; 0: no ``raw``. Asked only of
            programs that ``decide``, as is what follows.
        restrictions: where a pick is restricted, of each sequence; ``n_steps`` is 1 then. None of them: they come
            through ``Pending.restrict``.
    """

    picks: Sequence[Pick]
    numbers: Float32Array
    n_best: int
    pasts: Sequence[Sequence[int]] = ()
    n_raw: int = 0
    restrictions: Sequence[Restriction] = ()


@dataclass(frozen=True)
class Raw:
    """Logits as the model gave them, before anything was adjusted."""

    ids: Int32Array  # [n_steps, n_seqs, n_raw], of the highest, in descending order, equal ones by token id
    logits: Float32Array  # [n_steps, n_seqs, n_raw]
    picked: Float32Array  # [n_steps, n_seqs], of the token that was picked
    totals: Float32Array  # [n_steps, n_seqs], log(sum(exp(logits))) of the whole vocabulary


@dataclass(frozen=True)
class Ahead:
    """What several steps in a row gave: at each, the highest logits of each sequence and the token picked of them.

    Logits, adjusted as the pick says, descend, equal ones by token id; one that is NaN comes first.
    """

    ids: Int32Array  # [n_steps, n_seqs, n_best]
    logits: Float32Array  # [n_steps, n_seqs, n_best]
    picked: Int32Array  # [n_steps, n_seqs]
    raw: Raw | None = None  # where it was asked for

    def part(self, n_seqs: int, n_best: int, n_raw: int) -> Ahead:
        """Of the first sequences, with so many of the best."""
        raw = self.raw and Raw(
            self.raw.ids[:, :n_seqs, :n_raw],
            self.raw.logits[:, :n_seqs, :n_raw],
            self.raw.picked[:, :n_seqs],
            self.raw.totals[:, :n_seqs],
        )
        return Ahead(self.ids[:, :n_seqs, :n_best], self.logits[:, :n_seqs, :n_best], self.picked[:, :n_seqs], raw)
