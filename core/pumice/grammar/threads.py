"""Compute the masks of several sequences in llguidance's threads."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pumice.grammar.lexers import MAX_COPIES, Lexer

if TYPE_CHECKING:
    from llguidance import LLExecutor, LLMatcher

MIN_SECONDS = 1e-3  # sequential time of the masks from which on threads are faster than waking them costs


class MaskThreads:
    """Computes masks in threads if, by recent timings, one thread would be slow."""

    def worth(self, lexers: Sequence[Lexer]) -> bool:
        """Return True if masks of these grammars should be computed in parallel."""
        return sum(lexer.seconds for lexer in lexers) > MIN_SECONDS and len(set(lexers)) > 1

    def fill(self, matchers: Sequence[LLMatcher], n_lexers: int, masks: NDArray[np.uint32]) -> float:
        """Write each matcher's mask to a row of ``masks`` and return the approximate seconds per mask.

        Matchers of one lexer must be adjacent, since they wait for each other.
        """
        started = time.perf_counter()
        rows = list(zip(matchers, range(len(matchers)), strict=True))
        self._executor.unsafe_compute_mask_ptr(rows, masks.ctypes.data, masks[0].nbytes, len(masks))
        return (time.perf_counter() - started) * n_lexers / len(matchers)

    @cached_property
    def _executor(self) -> LLExecutor:
        from llguidance import LLExecutor

        return LLExecutor(num_threads=MAX_COPIES)
