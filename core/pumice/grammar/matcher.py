"""The state of one sequence within a grammar, and the fastest way to its mask of allowed tokens."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from copy import copy
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pumice.errors import RequestError
from pumice.grammar.check import describe
from pumice.sampler.mask import allow, n_words

if TYPE_CHECKING:
    from llguidance import LLMatcher

    from pumice.grammar.compiler import Compiler

_BY_WORDS = 3e-5  # approximate seconds to compute a mask from words


class Matcher:
    """llguidance's matcher of one sequence, with shortcuts for strings and forced tokens."""

    def __init__(self, source: str, compiler: Compiler) -> None:
        """Start a grammar in llguidance's form. Raises RequestError if it is invalid."""
        self.lexer = compiler.lexers.of(source, self)
        self._threads = compiler.threads
        self._texts = compiler.texts
        self._own = self._mask = np.empty(n_words(compiler.n_vocab), np.uint32)
        self._own_address = self._own.ctypes.data
        self.restart()

    def restart(self) -> None:
        """Go back to the start."""
        self._state: LLMatcher = self.lexer.matcher.deep_copy()
        self._strings = self.lexer.strings() if self.lexer.strings else None
        self._forced: list[int] | None = None  # the only possible next tokens; None if not computed yet
        self._filled = False  # True if ``_mask`` is already computed

    def fork(self) -> Matcher:
        """Return a matcher in the same state that advances independently."""
        other = copy(self)
        other._own = other._mask = np.empty_like(self._own)
        other._own_address = other._own.ctypes.data
        other._state, other._filled = self._state.deep_copy(), False
        other._strings = self._strings.fork() if self._strings else None
        return other

    def accept(self, token: int) -> None:
        """Advance by an allowed token."""
        self._filled = False
        self._forced = self._forced[1:] or None if self._forced and self._forced[0] == token else None
        if not self._state.consume_token(token):
            self._check()
        if self._strings:
            self._strings.accept(self._texts[token])

    def take(self, tokens: Sequence[int]) -> bool:
        """Advance by all of ``tokens`` and return True, or return False if they are not allowed."""
        if self.n_allowed(tokens) < len(tokens):
            return False
        for token in tokens:
            self.accept(token)
        return True

    def n_allowed(self, tokens: Sequence[int]) -> int:
        """Return how many of ``tokens`` are allowed in sequence."""
        return self._state.validate_tokens(list(tokens))

    def allows(self, token: int) -> bool:
        return self.n_allowed([token]) > 0

    @property
    def is_stopped(self) -> bool:
        """True if the grammar has ended."""
        return self._state.is_stopped()

    def forced(self) -> Sequence[int]:
        """Return the next tokens as far as the grammar leaves no choice."""
        if self._forced is None:
            self._forced = self._state.compute_ff_tokens()
        return self._forced

    @property
    def follows(self) -> bool:
        """True if the mask can be derived from an earlier one."""
        return self._strings is not None and self._strings.follows

    def mask(self) -> NDArray[np.uint32]:
        """Return the mask of allowed tokens: uint32 [n_words], writable and valid until the next call.

        Raises RequestError if the grammar exceeds its limit of work.
        """
        if self._strings and self._strings.follows:
            self._mask = self._own
            self._strings.follow(self._mask)
            return self._mask
        if not self._filled:
            self._fill()
        self._filled = False
        self._check()
        if self._strings:
            self._strings.note(self._mask)
        return self._mask

    def only(self, *tokens: int) -> NDArray[np.uint32]:
        """Return a mask of these tokens alone, valid until the next call."""
        self._mask = self._own
        self._mask[:] = 0
        allow(self._mask, tokens)
        return self._mask

    def everything(self) -> NDArray[np.uint32]:
        """Return a mask of all tokens, valid until the next call."""
        self._mask = self._own
        self._mask[:] = ~np.uint32(0)
        return self._mask

    @property
    def _by_words(self) -> bool:
        """True if the mask is made from words rather than by a walk through the vocabulary."""
        return self._strings is not None and self._strings.by_words and not self.forced()

    def _fill(self) -> None:
        """Compute the mask."""
        self._mask = self._own
        mask = self._strings.mask() if self._strings and self._by_words else None
        if mask is not None:
            self._mask[:] = mask
            self.lexer.took(_BY_WORDS)
        else:
            started = time.perf_counter()
            self._state.unsafe_compute_mask_ptr(self._own_address, self._own.nbytes)
            self.lexer.took(time.perf_counter() - started)

    def _check(self) -> None:
        if self._state.is_error():
            raise RequestError(f"the grammar cannot go on: {describe(self._state.get_error())}")

    @staticmethod
    def fill(matchers: Iterable[Matcher]) -> None:
        """Compute the masks of several sequences in threads, if that is faster."""
        waiting = [m for m in matchers if not m.follows and not m.forced() and not m._by_words]
        waiting.sort(key=lambda matcher: id(matcher.lexer))
        lexers = [matcher.lexer for matcher in waiting]
        threads = waiting[0]._threads if waiting else None
        if threads and threads.worth(lexers):
            masks = np.empty((len(waiting), len(waiting[0]._own)), np.uint32)
            seconds = threads.fill([matcher._state for matcher in waiting], len(set(lexers)), masks)
            for matcher, mask in zip(waiting, masks, strict=True):
                matcher._mask, matcher._filled = mask, True
                matcher.lexer.took(seconds)
