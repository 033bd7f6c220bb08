"""Suppressed tokens: those that a model's file excludes from generation, such as tokens of sounds."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from pumice.sampler.contract import MaskSampler
from pumice.sampler.mask import without_tokens


class Suppressed(MaskSampler):
    """A sampler that forbids some tokens."""

    def __init__(self, tokens: Iterable[int], n_vocab: int) -> None:
        self._mask = without_tokens(tokens, n_vocab)

    def mask(self) -> NDArray[np.uint32]:
        return self._mask

    def fork(self) -> Suppressed:
        return self  # it has no state
