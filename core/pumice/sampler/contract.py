"""Contract of samplers, and the context of a sequence that they get."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from pumice.backend.pick import Pick
from pumice.errors import RequestError
from pumice.options.option import check_size
from pumice.sampler.candidates import Candidates
from pumice.sampler.random import RNGS, make_rng
from pumice.wording import show_python

if TYPE_CHECKING:
    from pumice.tokenizers import Tokenizer


@dataclass(frozen=True)
class SamplerContext:
    """Context that the samplers of a sequence share.

    Attributes:
        n_vocab: Number of logits of a token.
        seed: Seed of ``rng``, 0 or more; -1 draws one, and this attribute then holds it.
        tokenizer: Tokenizer of the model; None if the file has no known one.
        kind: Generator of the random numbers, one of ``RNGS``.
        rng: Generator for the sampler that selects.
    """

    n_vocab: int
    seed: int = -1
    tokenizer: Tokenizer | None = None
    kind: str = RNGS[0]
    rng: np.random.Generator = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_size("seed", self.seed)
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or self.seed < -1:
            raise RequestError(
                f"seed must be an integer, 0 or more, or -1 for a fresh one, not {show_python(self.seed)}"
            )
        if self.seed == -1:
            object.__setattr__(self, "seed", secrets.randbits(32))
        if not isinstance(self.kind, str) or self.kind not in RNGS:
            raise RequestError(f"rng must be {' or '.join(RNGS)}, not {show_python(self.kind)}")
        object.__setattr__(self, "rng", make_rng(self.kind, self.seed))

    def filter_rng(self) -> np.random.Generator:
        """Return the generator for a sampler that does not select; in llama.cpp each has one with the same seed."""
        return self.rng if self.kind == RNGS[0] else make_rng(self.kind, self.seed)


class Sampler(ABC):
    """One step of the chain that turns logits into a token.

    A subclass is a dataclass whose fields are its parameters. Users set them by name, in ``sampling`` of a request
    or of a configuration file. Samplers that declare the same name get the same value. Types and ranges are
    checked before ``__init__``; ``start`` creates the state of a sequence::

        @dataclass
        class TopK(Sampler):
            top_k: Annotated[int, Ge(0)] = 40       # ranges by the package annotated_types

    A sampler that selects is a ``Selector``, one that only forbids tokens is a ``MaskSampler``, and one that a device
    can replace is a ``PlannedSampler``.
    """

    def start(self, context: SamplerContext) -> None:  # noqa: B027 - most samplers have no state
        """Begin a sequence. The tokens of the prompt follow by ``accept``."""

    def accept(self, token: int) -> None:  # noqa: B027 - most samplers have no history
        """Take the next token of the sequence, from the prompt or sampled."""

    @abstractmethod
    def apply(self, candidates: Candidates) -> None:
        """Change the candidates in place, and leave at least one."""


class Selector(Sampler):
    """A sampler that selects a token by ``candidates.select``. The first one that is not neutral ends the chain."""

    def relevant(self, before: Sequence[Sampler]) -> Sequence[Sampler]:
        """Return the samplers before this one that matter; the chain leaves out the others."""
        return before


class MaskSampler(Sampler):
    """A sampler that only forbids tokens: those that are not in its mask."""

    @abstractmethod
    def mask(self) -> NDArray[np.uint32] | None:
        """Return the mask of the tokens that may come next; None allows all.

        The chain asks once for each token, after ``accept`` of the one before, and applies all masks before its
        samplers. A token that is the only one allowed is appended without being sampled, and several such tokens in a
        row are computed together, like a prompt. A mask that allows no token ends the sequence, as an end token does.

        Returns:
            uint32 ``[ceil(n_vocab / 32)]``; token t is bit t % 32 of word t // 32, bits beyond the vocabulary are 0.
            The next call may write into the same array.
        """

    @classmethod
    def make_masks(cls, samplers: Sequence[Self]) -> None:
        """Prepare the masks of several sequences together, before ``mask`` of each; errors wait for that call."""

    def forced(self) -> Sequence[int]:
        """Return next tokens for which ``mask`` will leave no choice, as far as they are cheap to know."""
        return ()

    def n_allowed(self, tokens: Sequence[int]) -> int:
        """Return how many of these tokens may come next, one after the other; a number too high costs only time."""
        return len(tokens)

    def fork(self) -> Self | None:
        """Return a sampler in the same state that advances independently; None if the sampler cannot be copied.

        Masks behind drafted tokens come from copies, so a device can verify drafts of a sequence with masks.
        """
        return None

    def apply(self, candidates: Candidates) -> None:
        """Do nothing: the chain has applied the mask."""


def _unknown(pick: Pick) -> None:
    """Return None: no pick describes the sampler."""


class Plan(NamedTuple):
    """Description of a sampler's effect. The chain asks for it before ``start``, and calls its functions after.

    Attributes:
        neutral: True if the parameters switch the sampler off; the chain leaves it out.
        truncates: True if it only drops unlikely candidates; selectors that truncate by themselves leave it out.
        keeps_best: True if the candidate with the highest logit stays so; selectors that take it leave it out.
        pick: Returns the ``Pick`` that does what its argument does and then what the sampler does, or None: then the
            chain waits for all logits. A ``Pick`` without ``top_k`` may only adjust logits. An ``exact`` one is all
            that the chain does, except for masks; for others the chain runs again on the highest logits, and effects
            that the ``Pick`` leaves out may only lower logits.
        biases: For a ``restricted`` pick: returns tokens and the numbers that the sampler adds to their logits, each
            token once, no number above 0. Called once for each token, after ``accept`` of the one before.
        biases_behind: Returns what ``biases`` would return behind the first, the second, ... of these tokens, if they
            came next. None: a device verifies no drafts of a sequence with this sampler.
    """

    neutral: bool = False
    truncates: bool = False
    keeps_best: bool = False
    pick: Callable[[Pick], Pick | None] = _unknown
    biases: Callable[[], Sequence[tuple[int, float]]] | None = None
    biases_behind: Callable[[Sequence[int]], Sequence[Sequence[tuple[int, float]]]] | None = None

    @staticmethod
    def of(sampler: Sampler) -> Plan:
        """Return the plan of a sampler; one without a plan gets an empty one."""
        if isinstance(sampler, PlannedSampler):
            return sampler.plan()
        return Plan(pick=_unchanged) if isinstance(sampler, MaskSampler) else Plan()


def _unchanged(pick: Pick) -> Pick:
    return pick


class PlannedSampler(Sampler):
    """A sampler that describes its effect beforehand, so that a device can have it instead."""

    @abstractmethod
    def plan(self) -> Plan:
        """Return the description of what ``apply`` does with these parameters."""
