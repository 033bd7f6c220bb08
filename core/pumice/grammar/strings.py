"""Masks inside JSON strings: from one before, or from words where llguidance takes long to walk through all tokens.

Which of them is a function of the schema and the vocabulary, and the masks are those of llguidance in any case.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pumice.grammar.alphabet import Alphabet
from pumice.grammar.lengths import Lengths
from pumice.grammar.place import Path, Place
from pumice.grammar.schema import SchemaStrings, StringRule
from pumice.grammar.words import Words

if TYPE_CHECKING:
    from llguidance import LLMatcher


class StringMasks:
    """The masks of one sequence inside strings of which a schema asks something.

    Where characters are only counted a mask follows from one before, of the same string: a token may come if it was
    allowed there, and puts no more characters into the string than are left.
    """

    def __init__(
        self, strings: SchemaStrings, lengths: Lengths, start: Callable[[Alphabet], tuple[Words, LLMatcher]]
    ) -> None:
        """``start``: the words of an alphabet, and a matcher of them at the start of the grammar."""
        self._strings = strings
        self._lengths = lengths
        self._start = start
        self._base: NDArray[np.uint32] | None = None  # a mask of this string
        self._most_characters = 0  # of this string
        self._place = Place()
        self._path: Path | None = None
        self._rule: StringRule | None = None  # of the string that it is in, behind a whole character
        self._texts: list[bytes] = []
        self._matchers: dict[Alphabet, _Matcher] = {}

    def accept(self, text: bytes) -> None:
        """Go on by a token's text."""
        self._place.accept(text)
        self._texts.append(text)
        if self._path is not self._place.path:
            self._path, self._base = self._place.path, None
            self._rule = None if self._path is None else self._strings.rule(self._path)

    @property
    def follows(self) -> bool:
        """Whether the mask follows from one before. It leaves a choice, or is of the string's end."""
        return self._base is not None

    @property
    def by_words(self) -> bool:
        """Whether the mask is made from words, in such a string."""
        return self._rule is not None and self._rule.by_words

    def follow(self, mask: NDArray[np.uint32]) -> None:
        """Write the mask, where it follows."""
        assert self._base is not None
        np.bitwise_and(self._base, self._lengths.at_most(self._most_characters - self._place.size), out=mask)

    def note(self, mask: NDArray[np.uint32]) -> None:
        """Note a mask, if others follow from it: the string may end, and nothing is asked but that it ends in time."""
        least, most = (self._rule and self._rule.lengths) or (0, 0)
        if least <= self._place.size < most:
            self._base, self._most_characters = mask.copy(), most

    def mask(self) -> NDArray[np.uint32] | None:
        """The mask, where it is made from words; not to be written to. None if they do not tell it."""
        assert self._rule
        alphabet = self._rule.alphabet
        if alphabet not in self._matchers:
            words, start = self._start(alphabet)
            self._matchers[alphabet] = _Matcher(words, start.deep_copy())
        return self._matchers[alphabet].mask(self._texts)


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
