"""Masks of several sequences at once, by llguidance's threads."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pumice.grammar.lexers import MOST, Lexer

if TYPE_CHECKING:
    from llguidance import LLExecutor, LLMatcher

WORTH = 1e-3  # seconds that masks take one after the other, from which threads gain more than it costs to wake them


class MaskThreads:
    """Makes masks by threads where, by what they took lately, one thread would need long."""

    def worth(self, lexers: Sequence[Lexer]) -> bool:
        """Whether masks of these lexers should be made at once."""
        return sum(lexer.seconds for lexer in lexers) > WORTH and len(set(lexers)) > 1

    def fill(self, matchers: Sequence[LLMatcher], n_lexers: int, masks: NDArray[np.uint32]) -> float:
        """Write the mask of each matcher to a row; those of one lexer, which wait for each other, are in a row.

        Gives the seconds of one, about.
        """
        started = time.perf_counter()
        rows = list(zip(matchers, range(len(matchers)), strict=True))
        self._executor.unsafe_compute_mask_ptr(rows, masks.ctypes.data, masks[0].nbytes, len(masks))
        return (time.perf_counter() - started) * n_lexers / len(matchers)

    @cached_property
    def _executor(self) -> LLExecutor:
        from llguidance import LLExecutor

        return LLExecutor(num_threads=MOST)
