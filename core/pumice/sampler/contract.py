"""What a sampler is, and what it is told about the sequence it works for."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from pumice.errors import RequestError
from pumice.pick import Pick
from pumice.sampler.candidates import Candidates
from pumice.sampler.random import RNGS, make_rng

if TYPE_CHECKING:
    from pumice.tokenizers import Tokenizer


@dataclass(frozen=True)
class SamplerContext:
    """What the samplers of one sequence share.

    Attributes:
        n_vocab: number of logits at each step.
        seed: of ``rng``, 0 or more; -1 draws a fresh one, and this attribute then holds it.
        tokenizer: of the model, or None if there is none.
        kind: of the random numbers, one of ``RNGS``.
        rng: the source of randomness of who chooses. It is shared, so no two samplers draw the same numbers.
    """

    n_vocab: int
    seed: int = -1
    tokenizer: Tokenizer | None = None
    kind: str = RNGS[0]
    rng: np.random.Generator = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or self.seed < -1:
            raise RequestError(f"seed must be an integer, 0 or more, or -1 for a fresh one, not {self.seed!r}")
        if self.seed == -1:
            object.__setattr__(self, "seed", secrets.randbits(32))
        if self.kind not in RNGS:
            raise RequestError(f"rng must be {' or '.join(RNGS)}, not {self.kind!r:.60}")
        object.__setattr__(self, "rng", make_rng(self.kind, self.seed))

    def filter_rng(self) -> np.random.Generator:
        """Randomness of a sampler that does not choose: llama.cpp gives each its own, with the same seed."""
        return self.rng if self.kind == RNGS[0] else make_rng(self.kind, self.seed)


class Sampler(ABC):
    """One step of the chain that turns logits into a token.

    A subclass is a dataclass whose fields are its parameters: users set them by name, as arguments of
    ``generate`` or under ``sampling`` in a configuration file. Samplers that declare the same name get the
    same value. Types and ranges are checked before ``__init__``; state of a sequence is made in ``start``::

        @dataclass
        class TopK(Sampler):
            top_k: Annotated[int, Ge(0)] = 40       # ranges as the annotated_types package writes them

    One that chooses is a ``Selector``, one that only forbids tokens is a ``MaskSampler``, and one that a device can
    replace is a ``PlannedSampler``.
    """

    def start(self, context: SamplerContext) -> None:  # noqa: B027 - most samplers have no state
        """Begin a sequence. The tokens of the prompt follow, through ``accept``."""

    def accept(self, token: int) -> None:  # noqa: B027 - most samplers have no history
        """Take note of the next token of the sequence, from the prompt or chosen."""

    @abstractmethod
    def apply(self, candidates: Candidates) -> None:
        """Change the candidates in place, and leave at least one."""


class Selector(Sampler):
    """A sampler that chooses: ``apply`` calls ``candidates.select``. The first that is not neutral ends the chain."""

    def relevant(self, before: Sequence[Sampler]) -> Sequence[Sampler]:
        """Return those samplers before it that matter. The chain leaves out the others."""
        return before


class MaskSampler(Sampler):
    """A sampler that only forbids tokens: what is not in its mask is no candidate."""

    @abstractmethod
    def mask(self) -> NDArray[np.uint32] | None:
        """Which tokens may come next: a bit a token; None: all.

        uint32 ``[ceil(n_vocab / 32)]``; token t is bit t % 32 of word t // 32, bits beyond the vocabulary are 0. It is
        asked once for each token, after ``accept`` of the one before; the array may be written again at the next call.
        It holds before the chain: samplers see the candidates that all masks allow. A token that is the only one
        allowed is appended without being sampled, and several such in a row are computed together, like a prompt. A
        mask that allows none ends the sequence, as an end token does.
        """

    @classmethod
    def make_masks(cls, samplers: Sequence[Self]) -> None:
        """Prepare the masks of several sequences together, right before each is asked for; errors wait until then."""

    def forced(self) -> Sequence[int]:
        """The next tokens, as far as it is known at little cost that ``mask`` will leave no choice about them."""
        return ()

    def apply(self, candidates: Candidates) -> None:
        """Nothing: the chain gives it only what the mask allows."""


def _unknown(pick: Pick) -> None:
    """No pick does what such a sampler does."""


class Plan(NamedTuple):
    """What a sampler will do, as far as it is known before it runs. Asked before ``start``; its functions after.

    Attributes:
        neutral: these parameters switch the sampler off, and the chain leaves it out.
        truncates: it only drops unlikely candidates; selectors that truncate by themselves leave it out.
        keeps_best: the candidate with the highest logit stays that; selectors that take it leave it out.
        pick: the ``Pick`` that does what its argument does and then what the sampler does; None: there is none, and the
            chain waits for all logits. A ``Pick`` without ``top_k`` may only adjust logits. While it is ``exact``
            it is all that the chain does but for masks; else the chain looks at the highest logits again, and what it
            does not say may only lower logits.
        biases: where ``pick`` is made ``restricted``, what the sampler adds to the logits of single tokens, each of
            them once, none above 0. It is called once for each token, after ``accept`` of the one before.
    """

    neutral: bool = False
    truncates: bool = False
    keeps_best: bool = False
    pick: Callable[[Pick], Pick | None] = _unknown
    biases: Callable[[], Sequence[tuple[int, float]]] | None = None

    @staticmethod
    def of(sampler: Sampler) -> Plan:
        """The plan of any sampler: of one without, that nothing is known."""
        if isinstance(sampler, PlannedSampler):
            return sampler.plan()
        return Plan(pick=_unchanged) if isinstance(sampler, MaskSampler) else Plan()


def _unchanged(pick: Pick) -> Pick:
    return pick


class PlannedSampler(Sampler):
    """A sampler that says beforehand what it will do, so that a device can do it instead."""

    @abstractmethod
    def plan(self) -> Plan:
        """Describe what ``apply`` does with these parameters."""


_MOVED = {
    "selects": "subclass Selector",
    "relevant": "subclass Selector",
    "mask": "subclass MaskSampler",
    "make_masks": "subclass MaskSampler",
    "forced": "subclass MaskSampler",
    **dict.fromkeys(("is_neutral", "truncates", "keeps_best"), "subclass PlannedSampler, and say it in its plan"),
    **dict.fromkeys(("guess", "n_best", "lowers", "adjusts"), "subclass PlannedSampler, and say it in its plan's pick"),
}
"""Former members, and what took their places."""


def outdated(cls: type[Sampler]) -> str | None:
    """Why a class does not fit the contract any more, where it has a member that nobody would ask."""
    parts = [base for base in (Selector, MaskSampler) if issubclass(cls, base)]
    fields = getattr(cls, "__dataclass_fields__", {})
    for name, instead in _MOVED.items():
        if hasattr(cls, name) and name not in fields and not any(hasattr(base, name) for base in parts):
            return f"{name!r} is no member of a sampler any more: {instead}"
    return None
