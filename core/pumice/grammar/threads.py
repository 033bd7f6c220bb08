"""Masks of several sequences at once, by llguidance's threads."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pumice.host import cores

if TYPE_CHECKING:
    from llguidance import LLExecutor, LLMatcher

MOST = min(8, cores())  # threads; more gain little, as the mask that takes longest is one thread's
WORTH = 1e-4  # seconds that masks take one after the other, from which threads gain more than it costs to wake them
_FADING = 16  # masks after which half of what was known of their times is forgotten, about


class MaskThreads:
    """Makes masks by threads where, by what they took lately, one thread would need long."""

    def __init__(self) -> None:
        self._seconds = 0.0  # of one mask, a mean that fades

    def worth(self, n_masks: int) -> bool:
        """Whether so many should be made at once."""
        return MOST > 1 and n_masks > 1 and n_masks * self._seconds > WORTH

    def took(self, seconds: float, n_masks: int = 1) -> None:
        """Note the processor time of masks."""
        self._seconds += (seconds / n_masks - self._seconds) * min(n_masks / _FADING, 1.0)

    def fill(self, matchers: Sequence[LLMatcher], masks: NDArray[np.uint32]) -> None:
        """Write the mask of each matcher to a row; those of one lexer, which wait for each other, in a row."""
        started = time.perf_counter()
        rows = list(zip(matchers, range(len(matchers)), strict=True))
        self._executor.unsafe_compute_mask_ptr(rows, masks.ctypes.data, masks[0].nbytes, len(masks))
        self.took((time.perf_counter() - started) * min(MOST, len(matchers)), len(matchers))

    @cached_property
    def _executor(self) -> LLExecutor:
        from llguidance import LLExecutor

        return LLExecutor(num_threads=MOST)
