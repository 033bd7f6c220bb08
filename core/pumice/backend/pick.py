"""Picking the next tokens on the device: requests to a program (``Ask``) and its results (``Ahead``)."""

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
    """The rule by which a program picks a sequence's next token from the highest logits.

    1. Adjust: add ``biases`` to the logits of single tokens. The logit of a token that occurred ``count`` times among
       the last ``last_n`` tokens is divided by ``repeat_penalty`` if positive, else multiplied by it, and reduced by
       ``count * frequency_penalty + presence_penalty``. If ``restricted``, apply the biases and the mask of the
       token's ``Restriction``.
    2. Truncate: keep the ``top_k`` highest logits in descending order, ties by token id; of these the shortest prefix
       with a total probability of ``top_p``; of these the tokens with at least ``min_p`` times the highest probability.
    3. Draw: divide by ``temperature`` and accumulate the softmax; the first sum above a number from [0, 1) selects the
       token. With a ``temperature`` of 0, the highest logit is picked.

    A pick without ``top_k`` is incomplete: the plans of further samplers add it. If ``exact``, the rule equals the
    sampler chain, so the picked token is final; otherwise the host verifies it.
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
        """True if any logit is adjusted."""
        return bool(self.biases) or self.last_n > 0 or self.restricted

    @property
    def only_truncates(self) -> bool:
        """True if the token is drawn from the ``top_k`` highest logits without further truncation or a temperature."""
        return (self.top_p, self.min_p, self.temperature) == (1.0, 0.0, 1.0)

    @property
    def only_adjusts(self) -> bool:
        """True if the rule adjusts logits, and does not truncate them."""
        return not self.top_k and self.only_truncates

    @property
    def only_biases(self) -> bool:
        """True if adding biases is the only adjustment, and logits are not truncated."""
        return self == Pick(biases=self.biases)

    @property
    def raises(self) -> bool:
        """True if an adjustment may raise a logit, so that the highest may not be among the original candidates."""
        penalties = self.repeat_penalty >= 1 and self.frequency_penalty >= 0 and self.presence_penalty >= 0
        return not penalties or any(value > 0 for _, value in self.biases)

    def guessed(self) -> Pick:
        """Return a copy that is not exact, since a later sampler lowers logits."""
        return replace(self, exact=False)

    def unadjusted(self) -> Pick:
        """Return a copy without adjustments, exact only if there were none."""
        return Pick(self.top_k, self.top_p, self.min_p, self.temperature, exact=self.exact and not self.adjusts)


@dataclass(frozen=True)
class Restriction:
    """The restriction of a single next token, computed once the token before it is known.

    Attributes:
        mask: uint32 [ceil(n_vocab / 32)], one bit per token; logits of tokens outside it become -inf. None: no mask.
        biases: token ids, each at most once, and values to add to their logits.
    """

    mask: NDArray[np.uint32] | None = None
    biases: Sequence[tuple[int, float]] = ()


@dataclass(frozen=True)
class PickLimits:
    """Limits of what a program picks.

    Attributes:
        best: maximum candidates per token of an ``Ask``.
        biases: maximum ``biases`` of a ``Pick``.
        last_n: maximum ``last_n`` of a ``Pick``.
        added: maximum ``biases`` of a ``Restriction``.
        rows: maximum output rows after which an ``Ask`` of one step without adjustments picks tokens, of a graph that
            drafts a ``block``; 0: one of each sequence.
    """

    best: int = 0
    biases: int = 0
    last_n: int = 0
    added: int = 0
    rows: int = 0


@dataclass(frozen=True)
class Ask:
    """A request to pick the tokens of one step or of several consecutive steps.

    Attributes:
        picks: one rule per sequence; ``top_k`` is at most ``PickLimits.best``.
        numbers: float32 [n_steps, n_seqs] in [0, 1), the random numbers of ``picks``. ``n_steps`` is a power of two,
            except for steps of a draft model or of a layer that drafts.
        n_best: number of candidates to return, at most ``PickLimits.best`` and the size of the vocabulary.
        pasts: for each sequence the previous tokens that penalties count, the latest last; empty without adjustments.
        n_raw: number of the highest unadjusted logits to return, at most ``n_best``; 0: no ``raw``.
        restrictions: one per sequence if a pick is restricted, with ``n_steps`` of 1; empty: they follow through
            ``Pending.restrict``.  Of a step with drafts one per row, with those of a
            sequence together.
        n_drafted: tokens drafted for each sequence, which the step verifies; 0: none. There is one step, with
            ``1 + n_drafted`` rows of each sequence, together at most ``drafted_rows``; those after a sequence's first
            have the drafted tokens. ``numbers`` are ``[1, rows]``; each picked token of a sequence takes the next of
            its own. A step ``relative`` to its slots goes on with all sequences of the step before, which had as many
            drafts; it has numbers for both, ``[1, 2 * rows]``, with those of a sequence together.
        first_draft: index of the draft of its slot that the token of a sequence becomes in the first step, or the first
            of its tokens if it has several output rows; those of later steps follow. None: a picked token is the latest
            one of its slot. Programs without ``registers`` ignore it.
    """

    picks: Sequence[Pick]
    numbers: Float32Array
    n_best: int
    pasts: Sequence[Sequence[int]] = ()
    n_raw: int = 0
    restrictions: Sequence[Restriction] = ()
    n_drafted: int = 0
    first_draft: int | None = None


@dataclass(frozen=True)
class Raw:
    """The model's logits before adjustments."""

    ids: Int32Array  # [n_steps, n_seqs, n_raw], of the highest logits in descending order, ties by token id
    logits: Float32Array  # [n_steps, n_seqs, n_raw]
    picked: Float32Array  # [n_steps, n_seqs], logit of the picked token
    totals: Float32Array  # [n_steps, n_seqs], log(sum(exp(logits))) of the whole vocabulary


@dataclass(frozen=True)
class Ahead:
    """Results of consecutive steps: for each step and sequence the highest logits, and the picked token.

    Logits are adjusted by the pick, in descending order, ties by token id; NaN comes first. Of steps with drafts there
    is a row per computed token in place of each sequence; the first ``n_taken`` picked tokens follow each other.
    """

    ids: Int32Array  # [n_steps, n_seqs, n_best]
    logits: Float32Array  # [n_steps, n_seqs, n_best]
    picked: Int32Array  # [n_steps, n_seqs]
    raw: Raw | None = None  # if requested
    n_taken: Int32Array | None = None  # [n_steps, n_seqs] of steps with drafts

    def part(self, n_seqs: int, n_best: int, n_raw: int) -> Ahead:
        """Return the results of the first ``n_seqs`` sequences, with ``n_best`` candidates and ``n_raw`` raw logits."""
        raw = self.raw and Raw(
            self.raw.ids[:, :n_seqs, :n_raw],
            self.raw.logits[:, :n_seqs, :n_raw],
            self.raw.picked[:, :n_seqs],
            self.raw.totals[:, :n_seqs],
        )
        ids, logits = self.ids[:, :n_seqs, :n_best], self.logits[:, :n_seqs, :n_best]
        return Ahead(ids, logits, self.picked[:, :n_seqs], raw, self.n_taken)
