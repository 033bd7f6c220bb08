"""What a sampler is, and what it is told about the sequence it works for."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Self

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
    """

    selects: ClassVar[bool] = False
    """It chooses the token. The first such sampler that is not neutral ends the chain."""

    truncates: ClassVar[bool] = False
    """It only drops unlikely candidates."""

    keeps_best: ClassVar[bool] = False
    """The candidate with the highest logit stays the one with the highest logit."""

    @property
    def lowers(self) -> bool:
        """Whether all it does is to lower the logits of some tokens, and to mask: the highest that stay as they were
        are then among the highest before, and a device may give only those."""
        return False

    @property
    def adjusts(self) -> bool:
        """Whether all it does is to change the logits of some tokens, up or down, and to mask."""
        return self.lowers

    @property
    def is_neutral(self) -> bool:
        """Whether these parameters switch the sampler off: the chain then leaves it out."""
        return False

    def relevant(self, before: Sequence[Sampler]) -> Sequence[Sampler]:
        """For one that selects: which of the samplers before it matter. The chain leaves out the others."""
        return before

    @property
    def n_best(self) -> int | None:
        """How many of the highest logits its result depends on; None: on any of them.

        It counts for the first sampler of a chain, those that only lower, or on a device adjust, aside.
        """
        return None

    def guess(self, pick: Pick) -> Pick | None:
        """What ``pick``, which does what the samplers before do, becomes with this one; None: no ``Pick`` does that.

        It lets a device go on with the token that the chain will most likely choose. The chain has the last word,
        unless ``pick`` stays ``exact``: then it does all that the samplers do, but for masks, which hold in any case.
        It is asked after ``start``.
        """
        return replace(pick, exact=False) if self.lowers else None

    def start(self, context: SamplerContext) -> None:  # noqa: B027 - most samplers have no state
        """Begin a sequence. The tokens of the prompt follow, through ``accept``."""

    def mask(self) -> NDArray[np.uint32] | None:
        """Which tokens may come next: a bit a token; None: all.

        uint32 ``[ceil(n_vocab / 32)]``; token t is bit t % 32 of word t // 32, bits beyond the vocabulary are 0. It is
        asked once for each token, after ``accept`` of the one before; the array may be written again at the next call.
        It holds before the chain: samplers see the candidates that all masks allow. A token that is the only one
        allowed is appended without being sampled, and several such in a row are computed together, like a prompt. A
        mask that allows none ends the sequence, as an end token does.
        """
        return None

    @classmethod  # noqa: B027 - most samplers have no mask
    def make_masks(cls, samplers: Sequence[Self]) -> None:
        """Prepare the masks of several sequences together, right before each is asked for; errors wait until then."""

    def forced(self) -> Sequence[int]:
        """The next tokens, as far as it is known at little cost that ``mask`` will leave no choice about them."""
        return ()

    def biases(self) -> Sequence[tuple[int, float]]:
        """What a sampler whose ``guess`` is ``restricted`` will add to the logits of single tokens, each of them once.

        It is asked once for each token, after ``accept`` of the one before.
        """
        return ()

    @abstractmethod
    def apply(self, candidates: Candidates) -> None:
        """Change the candidates in place, and leave at least one."""

    def accept(self, token: int) -> None:  # noqa: B027 - most samplers have no history
        """Take note of the next token of the sequence, from the prompt or chosen."""


class MaskSampler(Sampler):
    """A sampler that is nothing but its mask: what is not in it is no candidate."""

    @property
    def lowers(self) -> bool:
        return True

    def guess(self, pick: Pick) -> Pick:
        return pick

    def apply(self, candidates: Candidates) -> None:
        """Nothing."""
