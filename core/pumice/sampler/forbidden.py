"""Forbidden tokens: those that a model's file suppresses, and end tokens before the minimum length of a text."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from copy import copy

import numpy as np
from numpy.typing import NDArray

from pumice.sampler.contract import MaskSampler
from pumice.sampler.mask import Mask


class ForbiddenTokens(MaskSampler):
    """A sampler that forbids tokens, at any time or before the sequence has a number of tokens.

    A grammar that has ended allows end tokens alone; the text then ends even if they are forbidden.
    """

    def __init__(self, tokens: Collection[int], mask: Mask, n_tokens: float = math.inf) -> None:
        """Forbid ``tokens`` before the sequence has ``n_tokens``, with its prompt.

        ``mask`` has all tokens but these; several samplers may share it.
        """
        self._tokens = frozenset(tokens)
        self._mask = mask
        self._n_left = n_tokens

    def mask(self) -> NDArray[np.uint32] | None:
        return self._mask if self._n_left > 0 else None

    def n_allowed(self, tokens: Sequence[int]) -> int:
        return next((i for i, token in enumerate(tokens) if i < self._n_left and token in self._tokens), len(tokens))

    def accept(self, token: int) -> None:
        self._n_left -= 1

    def fork(self) -> ForbiddenTokens:
        return copy(self)
