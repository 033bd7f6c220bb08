"""A minimum length of the text: end tokens are forbidden until it is reached."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from copy import copy

import numpy as np
from numpy.typing import NDArray

from pumice.sampler.contract import MaskSampler
from pumice.sampler.mask import Mask


class LeastTokens(MaskSampler):
    """A sampler that forbids the end tokens before a number of tokens.

    A grammar that has ended allows end tokens alone; the text then ends all the same.
    """

    def __init__(self, n_tokens: int, ends: Collection[int], mask: Mask, n_prompt: int = 0) -> None:
        """Forbid ``ends``.

        Args:
            n_tokens: Tokens of the text before which no end token may come.
            ends: End tokens.
            mask: All tokens but these; several samplers may share it.
            n_prompt: Accepted tokens that belong to the prompt.
        """
        self._n_left = n_tokens + n_prompt
        self._ends = frozenset(ends)
        self._mask = mask

    def mask(self) -> NDArray[np.uint32] | None:
        return self._mask if self._n_left > 0 else None

    def n_allowed(self, tokens: Sequence[int]) -> int:
        early = tokens[: max(0, self._n_left)]
        return next((i for i, token in enumerate(early) if token in self._ends), len(tokens))

    def accept(self, token: int) -> None:
        self._n_left -= 1

    def fork(self) -> LeastTokens:
        return copy(self)
