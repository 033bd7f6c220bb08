"""A grammar at work on one sequence: which tokens may come next, from the text where it begins to where it ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pumice.errors import RequestError
from pumice.grammar.compiler import Compiler
from pumice.sampler import Candidates, Sampler

if TYPE_CHECKING:
    from llguidance import LLMatcher


@dataclass(frozen=True)
class Grammar:
    """What an answer has to look like. Plain data.

    Attributes:
        source: the grammar, in llguidance's form (``grammar_source``).
        after: texts; the grammar begins after the first of them that comes, and all before is free. None: at once.
        optional: the answer may begin with this text, and then all is free until one of ``after``: reasoning, which
            the model may leave out. Otherwise the grammar begins at once.
        again: when the grammar has ended all is free again, until the next text of ``after``; otherwise the answer
            ends there.
    """

    source: str
    after: Sequence[str] = ()
    optional: str = ""
    again: bool = False


_NEWLINES = 2  # that models write between reasoning and answer, at most


class _State(Enum):
    OPENING = "at the beginning, where the optional text may come"
    FREE = "everything is allowed"
    INSIDE = "the grammar decides"


class Constraint(Sampler):
    """The sampler that keeps one sequence to a ``Grammar``: all it has is a mask."""

    def __init__(self, grammar: Grammar, compiler: Compiler, n_prompt: int = 0) -> None:
        """The first ``n_prompt`` tokens that are accepted are the prompt's. Raises RequestError for a wrong grammar."""
        self._n_prompt = n_prompt
        self._grammar = grammar
        self._texts = compiler.texts
        self._spelt = partial(compiler.tokenizer.token_bytes, special=True)
        self._vocabulary = compiler.vocabulary
        self._start: LLMatcher = compiler.matcher(grammar.source)
        self._matcher = self._start
        self._mask = np.empty((compiler.n_vocab + 31) // 32, np.uint32)
        self._after = [text.encode() for text in grammar.after]
        self._seen = b""  # the end of the text in which one of `after` may have begun
        self._opening = self._spell(grammar.optional)
        self._newlines = _newlines(compiler)
        self._state = _State.OPENING if self._opening else _State.FREE if self._after else _State.INSIDE
        self._forced: list[int] = []  # that come next in any case
        self._fresh = 0  # newlines that may come yet, between a free text and the grammar

    def mask(self) -> NDArray[np.uint32] | None:
        """As ``allowed``, but of several that make the same text only the one that the tokenizer would choose.

        None: all may come.
        """
        if self._state is _State.FREE:
            return None
        if self._state is _State.INSIDE and not self._fresh:
            self._forced = self._forced or self._matcher.compute_ff_tokens()
            if self._forced:
                self._mask[:] = 0
                self._allow(self._forced[:1])
                return self._mask
        return self.allowed()

    def allowed(self) -> NDArray[np.uint32]:
        """The tokens that may come next, a bit each: uint32 [ceil(n_vocab / 32)], lowest bit first.

        Valid until the next call. Raises RequestError if the grammar needs more work than is allowed.
        """
        if self._state is _State.FREE:
            self._mask[:] = ~np.uint32(0)
            return self._mask
        self._matcher.unsafe_compute_mask_ptr(self._mask.ctypes.data, self._mask.nbytes)
        self._check()
        if self._state is _State.OPENING:
            self._allow(self._opening)
        elif self._fresh:
            self._allow(self._newlines)
        return self._mask

    @property
    def lowers(self) -> bool:
        return True

    def apply(self, candidates: Candidates) -> None:
        """Nothing: what is not in the mask is no candidate."""

    def accept(self, token: int) -> None:
        """Go on by one token, one of those that are allowed."""
        if self._n_prompt:
            self._n_prompt -= 1
        elif self._state is _State.FREE:
            self._look(self._spelt(token))
        elif self._is_extra(token):
            self._state = _State.FREE if self._state is _State.OPENING else _State.INSIDE
            self._fresh = max(self._fresh - len(self._texts[token]), 0)
        else:
            self._state, self._fresh = _State.INSIDE, 0
            self._forced = self._forced[1:] if self._forced[:1] == [token] else []
            self._matcher.consume_token(token)
            self._check()
            if self._grammar.again and self._matcher.is_stopped():
                self._state = _State.FREE

    def _is_extra(self, token: int) -> bool:
        """Whether ``token`` is one that the grammar does not know and may yet come."""
        if self._state is _State.OPENING:
            return token in self._opening and self._matcher.validate_tokens([token]) == 0
        return self._fresh > 0 and token in self._newlines

    def _look(self, text: bytes) -> None:
        """Begin the grammar if one of ``after`` ends here; what comes after it in this token is part of it."""
        self._seen += text
        ends = [place + len(after) for after in self._after if (place := self._seen.find(after)) >= 0]
        if not ends:
            longest = max((len(after) for after in self._after), default=1)
            self._seen = self._seen[-longest:]
            return
        rest = self._seen[min(ends) :].lstrip(b"\n")
        self._seen = b""
        self._matcher = self._start.deep_copy()
        tokens = self._vocabulary.tokenize_bytes(rest) if rest else []
        if self._matcher.try_consume_tokens(tokens) == len(tokens):
            self._state, self._fresh = _State.INSIDE, 0 if tokens else _NEWLINES
        elif not self._grammar.again:
            raise RequestError(f"the model went on with {rest[:40]!r} where the grammar begins")

    def _spell(self, text: str) -> list[int]:
        """The token of a text that is one, in a list; else an empty list: that text may not come."""
        if not text:
            return []
        tokens = self._vocabulary.tokenize_str(text)
        return tokens if len(tokens) == 1 else []

    def _allow(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            self._mask[token >> 5] |= np.uint32(1 << (token & 31))

    def _check(self) -> None:
        if self._matcher.is_error():
            raise RequestError(f"the grammar cannot go on: {' '.join(self._matcher.get_error().split())[:300]}")


def _newlines(compiler: Compiler) -> list[int]:
    """Tokens of newlines alone, as many as may come."""
    allowed = {b"\n" * n for n in range(1, _NEWLINES + 1)}
    return [token for token, text in enumerate(compiler.texts) if text in allowed]
