"""Masks inside JSON strings, from words: where llguidance takes long to walk through all tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pumice.grammar.alphabet import Alphabet
from pumice.grammar.place import Path, Place
from pumice.grammar.schema import SchemaStrings, StringRule
from pumice.grammar.words import Words

if TYPE_CHECKING:
    from llguidance import LLMatcher

USUAL = 3e-5  # seconds of a mask from words, about
_LOST = 2e-3  # seconds that masks took more than that, after which they are made from words
_MOST = 3e-4  # seconds that one is taken to need: what is more may be others' on the same core
_FORGOTTEN = 1e-6  # seconds of those, with each mask from words, so that after some llguidance is tried again
_PART = 16  # bytes
_PARTS = 32  # whose times are known apart; the rest of longer strings is one


class StringMasks:
    """The masks of one sequence inside strings of which a schema asks something."""

    def __init__(self, strings: SchemaStrings, start: Callable[[Alphabet], tuple[Words, LLMatcher]]) -> None:
        """``start``: the words of an alphabet, and a matcher of them at the start of the grammar."""
        self._strings = strings
        self._start = start
        self._place = Place()
        self._path: Path | None = None
        self._rule: StringRule | None = None  # of the string that it is in, behind a whole character
        self._part = 0  # of that string: how long llguidance takes depends on what may still come
        self._texts: list[bytes] = []
        self._matchers: dict[Alphabet, _Matcher] = {}

    def accept(self, text: bytes) -> None:
        """Go on by a token's text."""
        self._place.accept(text)
        self._texts.append(text)
        if self._path is not self._place.path:
            self._path = self._place.path
            self._rule = None if self._path is None else self._strings.rule(self._path)
        self._part = min(self._place.size // _PART, _PARTS)

    @property
    def worth(self) -> bool:
        """Whether walks through the vocabulary took long in such a string, about here."""
        return self._rule is not None and self._lost(self._rule) > _LOST

    def took(self, seconds: float) -> None:
        """Note the time of such a walk."""
        if self._rule:
            lost = self._lost(self._rule) + min(seconds, _MOST) - USUAL
            self._rule.lost[self._part] = min(max(0.0, lost), 2 * _LOST)

    def mask(self) -> NDArray[np.uint32] | None:
        """The mask, where ``worth`` says so; not to be written to. None if words do not tell it."""
        assert self._rule
        self._rule.lost[self._part] = self._lost(self._rule) - _FORGOTTEN
        alphabet = self._rule.alphabet
        if alphabet not in self._matchers:
            words, start = self._start(alphabet)
            self._matchers[alphabet] = _Matcher(words, start.deep_copy())
        return self._matchers[alphabet].mask(self._texts)

    def _lost(self, rule: StringRule) -> float:
        """What is known of this part of strings, or at first of the part before."""
        return rule.lost.setdefault(self._part, rule.lost.get(self._part - 1, 0.0))


class _Matcher:
    """A matcher of words, which follows a text when its mask is needed."""

    def __init__(self, words: Words, matcher: LLMatcher) -> None:
        self._words = words
        self._matcher = matcher
        self._taken = 0  # texts

    def mask(self, texts: list[bytes]) -> NDArray[np.uint32] | None:
        self._words.accept(self._matcher, b"".join(texts[self._taken :]))
        self._taken = len(texts)
        return self._words.mask(self._matcher)
