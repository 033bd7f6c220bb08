"""Masks inside JSON strings whose characters are only counted: the next one follows from the one before.

Where a string may have so many more characters, and nothing else is asked of it, a token may come if it was allowed
before and puts no more characters into the string than are left. llguidance would look at most of the vocabulary to
find that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pumice.sampler.mask import from_bits

if TYPE_CHECKING:
    from llguidance import LLMatcher

SHORT = 30  # characters: where more may come llguidance is quicker, which knows all shorter tokens at once
LONG = 3e-5  # seconds; masks that take less are not worth a look whether others follow from them
_MARKERS = "~^`|@#%&=;<>!?*+$"  # characters of which one that is in no text of the schema stands for all others
_CHARACTER = re.compile(rb"\\u[0-9a-fA-F]{0,4}|\\.?|[^\"\\][\x80-\xbf]*", re.DOTALL)  # of a string, or its beginning
_WHOLE = re.compile(r'(?:[^"\\\x00-\x1f\x7f]|\\["\\/bfnrt])+')
_ENDS = re.compile(  # a token with the end of a string, an escape, or the beginning of a character
    rb'(?:[^"\\\x00-\x1f\x7f-\xff]|[\xc0-\xff][\x80-\xbf]+)*(?:["\\\x7f]|[\xc0-\xff][\x80-\xbf]*$)'
)
_KNOWN = frozenset(
    """type properties required additionalProperties items prefixItems minItems maxItems minLength maxLength minimum
    maximum exclusiveMinimum exclusiveMaximum multipleOf enum const anyOf oneOf $ref $defs definitions title
    description default examples $schema $id $comment deprecated readOnly writeOnly x-guidance""".split()  # noqa: SIM905
)  # keywords of JSON Schema that ask nothing of a string but its length, or to be one of some texts
_LENGTHS = frozenset(["minLength", "maxLength"])
_INNER = frozenset(["items", "prefixItems", "additionalProperties", "anyOf", "oneOf"])  # keys of schemas
_NAMED = frozenset(["properties", "$defs", "definitions"])  # keys of schemas by names
_WITHOUT_STRINGS = ("null", "boolean", "integer", "number")


class Lengths:
    """Of each token of a vocabulary: the characters that it puts into a JSON string in which it comes.

    Attributes:
        longest: the most characters of a token.
        whole: of the tokens that are nothing but whole characters, how many; 0 of others.
        plain: mask, uint32 [n_words]: those of them without an escape.
        narrow: texts; none of tokens that are plain, or come nowhere where a character may come.
        characters: tokens of single characters, by their text.
    """

    def __init__(self, texts: Sequence[bytes], n_vocab: int) -> None:
        inside = [_inside(text) for text in texts]
        counts = np.zeros(n_vocab, np.int64)
        counts[: len(texts)] = [len(characters) for characters in inside]
        self.longest = int(counts.max())
        self.whole = [len(each) if _is_whole(text) else 0 for text, each in zip(texts, inside, strict=True)]
        plain = np.zeros(n_vocab, np.bool_)
        plain[: len(texts)] = [bool(n) and b"\\" not in text for n, text in zip(self.whole, texts, strict=True)]
        self.plain = from_bits(plain)
        ends = [not of_plain and _ENDS.match(text) for of_plain, text in zip(plain, texts, strict=False)]
        self.narrow = [text if found else b"" for found, text in zip(ends, texts, strict=True)]
        self.characters = {chr(text[0]): token for token, text in enumerate(texts) if len(text) == 1 and text < b"\x80"}
        self._up_to = np.stack([from_bits(counts <= n) for n in range(self.longest + 1)])
        self._texts, self._n_vocab = texts, n_vocab

    def at_most(self, n: int) -> NDArray[np.uint32]:
        """The mask of the tokens of at most so many characters."""
        return self._up_to[min(n, self.longest)]

    def in_bytes(self, tokens: Sequence[int]) -> list[int]:
        """The bytes of tokens, as tokens of the narrow vocabulary."""
        return [self._n_vocab + byte for token in tokens for byte in self._texts[token]]

    def has(self, marker: str) -> bool:
        """Whether ``StringMasks`` finds its tokens."""
        return {marker, '"', ":"} <= self.characters.keys()


def _inside(text: bytes) -> list[bytes]:
    """The characters up to what is none of a string's; an escape is one, and so is the beginning of one."""
    characters, at = [], 0
    while found := _CHARACTER.match(text, at):
        characters.append(found[0])
        at = found.end()
    return characters


def _is_whole(text: bytes) -> bool:
    """Whether a string goes on after it as before it: with any character."""
    try:
        return _WHOLE.fullmatch(text.decode()) is not None
    except UnicodeDecodeError:
        return False


class StringMasks:
    """The masks of one sequence, where it is inside a string whose characters are only counted."""

    def __init__(self, lengths: Lengths, marker: str, narrow: LLMatcher) -> None:
        """``marker``: as of ``marker_of``; ``narrow``: the grammar at its start, of the narrow vocabulary."""
        self._lengths = lengths
        self._quote = lengths.characters['"']
        self._one = [lengths.characters[marker]]
        self._many = self._one * (2 * lengths.longest)
        self._key = [*self._one, self._quote, lengths.characters[":"]]
        self._base: NDArray[np.uint32] | None = None  # the mask from which the next ones follow
        self._room = 0  # characters that were left there
        self._lasts = 0  # characters for which others follow
        self._used = 0  # characters since
        self._left: int | None = None  # characters that are left now; None: not known yet
        self._narrow = narrow.deep_copy()
        self._behind: list[int] = []  # tokens that it has not taken yet

    def accept(self, token: int) -> None:
        n = self._lengths.whole[token]
        self._used += n
        if not n or self._used > self._lasts:
            self._base = None
        self._left = None
        self._behind.append(token)

    @property
    def follows(self) -> bool:
        """Whether ``follow`` knows the mask. It leaves a choice."""
        return self._base is not None and self._used > 0

    def follow(self, mask: NDArray[np.uint32]) -> None:
        """Write the mask."""
        assert self._base is not None
        np.bitwise_and(self._base, self._lengths.at_most(self._room - self._used), out=mask)

    def make(self, matcher: LLMatcher, mask: NDArray[np.uint32]) -> bool:
        """Write the mask inside such a string, where little may still come. Else False: it is the matcher's to do."""
        left = self._find_left(matcher)
        if not 0 < left <= SHORT:
            return False
        self._narrow.consume_tokens(self._lengths.in_bytes(self._behind))
        self._behind.clear()
        wide = np.empty(len(mask) + 8, np.uint32)
        self._narrow.unsafe_compute_mask_ptr(wide.ctypes.data, wide.nbytes)
        wide[len(mask) - 1] &= self._lengths.at_most(self._lengths.longest)[-1]  # there are bytes behind the vocabulary
        np.bitwise_and(self._lengths.plain, self._lengths.at_most(left), out=mask)
        np.bitwise_or(mask, wide[: len(mask)], out=mask)
        return not self._narrow.is_error()

    def look(self, matcher: LLMatcher, mask: NDArray[np.uint32]) -> None:
        """Note a mask, if others follow from it: the rules are those of all characters that are still to come."""
        self._base, self._used = None, 0
        self._room = self._find_left(matcher)
        if not self._room:
            return
        most, longest = len(self._many), self._lengths.longest
        self._lasts = self._room - 1 if self._room < most else most - longest
        may_end = mask[self._quote >> 5] >> (self._quote & 31) & 1
        if may_end or matcher.validate_tokens([*self._many, self._quote]) == most:
            self._base = mask.copy()  # it may end from now on, or no token of the next ones may end it

    def _find_left(self, matcher: LLMatcher) -> int:
        """The characters that may still come, as far as they are of interest.

        0 outside a string, and in the name of a property, which may be one that is known.
        """
        if self._left is None:
            self._left = matcher.validate_tokens(self._one)
            if self._left and matcher.validate_tokens(self._key) == len(self._key):
                self._left = 0
            elif self._left:
                self._left = matcher.validate_tokens(self._many)
        return self._left


def marker_of(source: str) -> str | None:
    """A character that is in no text of a grammar, if that is a schema which only counts characters of strings.

    What takes it is a string, and would take any other: nothing is asked of strings but their lengths, or to be one of
    some texts.
    """
    try:
        schema = json.loads(source)["grammars"][0]["json_schema"]
    except (ValueError, LookupError, TypeError):
        return None
    return next((each for each in _MARKERS if each not in source), None) if _only_counts(schema) else None


def _only_counts(schema: Any) -> bool:
    nodes = [node for node in _nodes(schema) if isinstance(node, Mapping)]
    known = all(node.keys() <= _KNOWN for node in nodes)
    return known and any(node.keys() & _LENGTHS for node in nodes) and not any(map(_is_choice, nodes))


def _nodes(schema: Any) -> Iterator[Any]:
    """A schema and those in it."""
    yield schema
    if not isinstance(schema, Mapping):
        return
    for key, value in schema.items():
        if key in _NAMED and isinstance(value, Mapping):
            inner = list(value.values())
        elif key in _INNER:
            inner = value if isinstance(value, list) else [value]
        else:
            continue
        for each in inner:
            yield from _nodes(each)


def _is_choice(node: Mapping[str, Any]) -> bool:
    """Whether one string may have to keep to either of several rules."""
    return any(sum(map(_may_be_string, node.get(key, []))) > 1 for key in ("anyOf", "oneOf"))


def _may_be_string(schema: Any) -> bool:
    """Whether there may be a string in what a schema describes."""
    return not (isinstance(schema, Mapping) and schema.get("type") in _WITHOUT_STRINGS)
