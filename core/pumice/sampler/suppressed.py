"""Tokens that a model's file never wants generated, as those of sounds that a text has no use for."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from pumice.pick import Pick
from pumice.sampler.candidates import Candidates
from pumice.sampler.contract import Sampler
from pumice.sampler.mask import from_tokens


class Suppressed(Sampler):
    """The sampler that leaves out some tokens: all it has is a mask."""

    def __init__(self, tokens: Iterable[int], n_vocab: int) -> None:
        self._mask = from_tokens(np.setdiff1d(np.arange(n_vocab), list(tokens)), n_vocab)

    def mask(self) -> NDArray[np.uint32]:
        return self._mask

    @property
    def lowers(self) -> bool:
        return True

    def guess(self, pick: Pick) -> Pick:
        return pick

    def apply(self, candidates: Candidates) -> None:
        """Nothing: what is not in the mask is no candidate."""
