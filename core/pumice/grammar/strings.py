"""Fast masks inside JSON strings: derived from an earlier mask, or from words where llguidance's walk is slow.

The choice depends on the schema and the vocabulary alone, and the masks equal those of llguidance.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pumice.grammar.alphabet import Alphabet
from pumice.grammar.json_position import JsonPosition, Path
from pumice.grammar.lengths import Lengths
from pumice.grammar.schema import SchemaStrings, StringRule
from pumice.grammar.words import Words

if TYPE_CHECKING:
    from llguidance import LLMatcher


class StringMasks:
    """The masks of one sequence inside strings that a schema constrains.

    If only the number of characters is limited, the mask follows from an earlier one of the same string: a token is
    allowed if it was allowed there and does not add more characters than are left.
    """

    def __init__(
        self, strings: SchemaStrings, lengths: Lengths, start: Callable[[Alphabet], tuple[Words, LLMatcher]]
    ) -> None:
        """``start`` returns the words of an alphabet and their matcher at the start of the grammar."""
        self._strings = strings
        self._lengths = lengths
        self._start = start
        self._base: NDArray[np.uint32] | None = None  # an earlier mask of this string
        self._max_characters = 0  # of this string
        self._position = JsonPosition()
        self._path: Path | None = None
        self._rule: StringRule | None = None  # of the current string, after a complete character
        self._texts: list[bytes] = []
        self._matchers: dict[Alphabet, _WordMatcher] = {}

    def fork(self) -> StringMasks:
        """Return an independent copy."""
        other = copy(self)
        other._position, other._texts = self._position.fork(), list(self._texts)
        other._matchers = {alphabet: matcher.fork() for alphabet, matcher in self._matchers.items()}
        return other

    def accept(self, text: bytes) -> None:
        """Append the text of an accepted token."""
        self._position.accept(text)
        self._texts.append(text)
        if self._path is not self._position.path:
            self._path, self._base = self._position.path, None
            self._rule = None if self._path is None else self._strings.rule(self._path)

    @property
    def follows(self) -> bool:
        """True if the mask can be derived from an earlier one, which has more than one token or ends the string."""
        return self._base is not None

    @property
    def by_words(self) -> bool:
        """True if the mask is made from words."""
        return self._rule is not None and self._rule.by_words

    def follow(self, mask: NDArray[np.uint32]) -> None:
        """Write the mask that is derived from an earlier one."""
        assert self._base is not None
        np.bitwise_and(self._base, self._lengths.at_most(self._max_characters - self._position.size), out=mask)

    def note(self, mask: NDArray[np.uint32]) -> None:
        """Remember a mask if later ones follow from it: the string may end, and only its maximum length is limited."""
        least, most = (self._rule and self._rule.lengths) or (0, 0)
        if least <= self._position.size < most:
            self._base, self._max_characters = mask.copy(), most

    def mask(self) -> NDArray[np.uint32] | None:
        """Return the mask made from words, read-only; None if the words do not determine it."""
        assert self._rule
        alphabet = self._rule.alphabet
        if alphabet not in self._matchers:
            words, start = self._start(alphabet)
            self._matchers[alphabet] = _WordMatcher(words, start.deep_copy())
        return self._matchers[alphabet].mask(self._texts)


class _WordMatcher:
    """A matcher of words. It reads the text only when a mask is needed."""

    def __init__(self, words: Words, matcher: LLMatcher) -> None:
        self._words = words
        self._matcher = matcher
        self._taken = 0  # number of texts read

    def fork(self) -> _WordMatcher:
        """Return an independent copy."""
        other = _WordMatcher(self._words, self._matcher.deep_copy())
        other._taken = self._taken
        return other

    def mask(self, texts: list[bytes]) -> NDArray[np.uint32] | None:
        self._words.accept(self._matcher, b"".join(texts[self._taken :]))
        self._taken = len(texts)
        return self._words.mask(self._matcher)
