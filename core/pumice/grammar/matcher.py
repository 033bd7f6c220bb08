"""A place in a grammar: the tokens that may come there, found in the quickest way that there is."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pumice.errors import RequestError
from pumice.grammar.compiler import Compiler
from pumice.sampler.mask import allow, n_words

if TYPE_CHECKING:
    from llguidance import LLMatcher

_BY_WORDS = 3e-5  # seconds of a mask from words, about


class Matcher:
    """llguidance's matcher of one sequence, and what is known beside it."""

    def __init__(self, source: str, compiler: Compiler) -> None:
        """At the start of a grammar in llguidance's form. Raises RequestError for a wrong one."""
        self.lexer = compiler.lexers.of(source, self)
        self._threads = compiler.threads
        self._texts = compiler.texts
        self._own = self._mask = np.empty(n_words(compiler.n_vocab), np.uint32)
        self._own_address = self._own.ctypes.data
        self.restart()

    def restart(self) -> None:
        """Go back to the start."""
        self._at: LLMatcher = self.lexer.matcher.deep_copy()
        self._strings = self.lexer.strings() if self.lexer.strings else None
        self._forced: list[int] | None = None  # what comes next in any case; None: not asked yet
        self._filled = False  # whether ``_mask`` is known already

    def accept(self, token: int) -> None:
        """Go on by a token that is allowed."""
        self._filled = False
        self._forced = self._forced[1:] or None if self._forced and self._forced[0] == token else None
        if not self._at.consume_token(token):
            self._check()
        if self._strings:
            self._strings.accept(self._texts[token])

    def take(self, tokens: Sequence[int]) -> bool:
        """Go on by all of these tokens, if they are allowed."""
        if self._at.validate_tokens(list(tokens)) < len(tokens):
            return False
        for token in tokens:
            self.accept(token)
        return True

    def allows(self, token: int) -> bool:
        return self._at.validate_tokens([token]) > 0

    @property
    def is_stopped(self) -> bool:
        """Whether the grammar has ended."""
        return self._at.is_stopped()

    def forced(self) -> Sequence[int]:
        """The next tokens, as far as there is no choice."""
        if self._forced is None:
            self._forced = self._at.compute_ff_tokens()
        return self._forced

    @property
    def follows(self) -> bool:
        """Whether the mask follows from one before."""
        return self._strings is not None and self._strings.follows

    def mask(self) -> NDArray[np.uint32]:
        """The tokens that may come next: uint32 [n_words], to be written to, until the next call.

        Raises RequestError if the grammar needs more work than is allowed.
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
        """A mask of these tokens alone, until the next call."""
        self._mask = self._own
        self._mask[:] = 0
        allow(self._mask, tokens)
        return self._mask

    def everything(self) -> NDArray[np.uint32]:
        """A mask of all tokens, until the next call."""
        self._mask = self._own
        self._mask[:] = ~np.uint32(0)
        return self._mask

    @property
    def _by_words(self) -> bool:
        """Whether the mask is made from words, and not by a walk through the vocabulary."""
        return self._strings is not None and self._strings.by_words and not self.forced()

    def _fill(self) -> None:
        """Write the mask."""
        self._mask = self._own
        found = self._strings.mask() if self._strings and self._by_words else None
        if found is not None:
            self._mask[:] = found
            self.lexer.took(_BY_WORDS)
        else:
            started = time.perf_counter()
            self._at.unsafe_compute_mask_ptr(self._own_address, self._own.nbytes)
            self.lexer.took(time.perf_counter() - started)

    def _check(self) -> None:
        if self._at.is_error():
            raise RequestError(f"the grammar cannot go on: {' '.join(self._at.get_error().split())[:300]}")

    @staticmethod
    def fill(matchers: Iterable[Matcher]) -> None:
        """Have threads make the masks of several sequences at once, where that is worth it."""
        waiting = [each for each in matchers if not each.follows and not each.forced() and not each._by_words]
        waiting.sort(key=lambda each: id(each.lexer))
        lexers = [each.lexer for each in waiting]
        threads = waiting[0]._threads if waiting else None
        if threads and threads.worth(lexers):
            masks = np.empty((len(waiting), len(waiting[0]._own)), np.uint32)
            seconds = threads.fill([each._at for each in waiting], len(set(lexers)), masks)
            for each, mask in zip(waiting, masks, strict=True):
                each._mask, each._filled = mask, True
                each.lexer.took(seconds)
