"""What users write is never read as special tokens: their texts are marked before a template writes them.

A mark follows each character of a user's text with which a special token could begin. Marked spellings are text to
the tokenizer; all other marks are dropped again, so that a prompt without such spellings has the tokens it would have
anyway.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from pumice.errors import RequestError

if TYPE_CHECKING:
    from pumice.tokenizers import Tokenizer

_MARKS = tuple(map(chr, range(0xFDD0, 0xFDF0)))  # Unicode's noncharacters: no text should have them
_LITERAL = re.compile(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"|\\.")  # a lone escape: or each could begin one
_USER_DEFINED = re.compile(r"<[|｜].*[|｜]>")


def special_spellings(tokenizer: Tokenizer) -> tuple[str, ...]:
    """Return the spellings of special tokens that no user's text may write."""
    vocabulary = tokenizer.vocabulary
    spellings = {vocabulary.tokens[token] for token in vocabulary.hidden} | {
        text for token in vocabulary.user_defined if _USER_DEFINED.fullmatch(text := vocabulary.tokens[token])
    }
    return tuple(sorted(spellings))


def tokenize_marked(tokenizer: Tokenizer, text: str, mark: str) -> list[int]:
    """Return the tokens of a guarded prompt, after BOS where the model wants it and the template did not write it."""
    ids = tokenizer.tokenize(text, add_special=False, mark=mark)
    bos = tokenizer.bos
    return [bos, *ids] if tokenizer.add_bos and bos is not None and ids[:1] != [bos] else ids


@lru_cache(maxsize=8)
def guard_of(spellings: tuple[str, ...], source: str) -> Guard:
    return Guard(spellings, source)


class Guard:
    """Marks users' texts for one template and vocabulary.

    A template may look for marks of its own in a text, ``</think>`` say. Such literals of its source are left alone,
    unless they begin a special token.
    """

    def __init__(self, spellings: Iterable[str], source: str) -> None:
        """``spellings``: as ``special_spellings`` gives them; ``source``: of the template."""
        self._spellings = {spelling for spelling in spellings if spelling}
        self._firsts = "".join(sorted({text[0] for text in self._spellings}))
        self._looked_for = self._fragments(source)
        self._patterns: dict[str, re.Pattern[str]] = {}  # by the mark

    def mark(self, *values: Any) -> tuple[str, list[Any]]:
        """The mark, which none of the values has, and the values with all their texts marked."""
        written = "".join(_texts(values))
        mark = next((mark for mark in _MARKS if mark not in written), None)
        if mark is None:
            raise RequestError("the messages have every noncharacter of Unicode, U+FDD0 to U+FDEF: leave one out")
        return mark, [self._marked(value, mark) for value in values] if self._firsts else list(values)

    def _marked(self, value: Any, mark: str) -> Any:
        if isinstance(value, str):
            return self._places.sub(lambda place: place[0] if len(place[0]) > 1 else place[0] + mark, value)
        if isinstance(value, Mapping):
            return {self._marked(key, mark): self._marked(item, mark) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._marked(item, mark) for item in value]
        return value

    @cached_property
    def _places(self) -> re.Pattern[str]:
        """What a template looks for, or a character that begins a special token."""
        fragments = sorted(self._looked_for, key=len, reverse=True)
        return re.compile("|".join([*map(re.escape, fragments), f"[{re.escape(self._firsts)}]"]))

    def _fragments(self, source: str) -> set[str]:
        """Of the template's literals, what begins as a special token could but does not go on like any."""
        if not self._firsts:
            return set()
        cut = re.compile(f"(?=[{re.escape(self._firsts)}])")
        literals = (single or double for single, double in _LITERAL.findall(source))
        fragments = {part for text in literals for part in cut.split(text.replace("\\n", "\n"))}
        return {
            part
            for part in fragments
            if len(part) > 1
            and part[0] in self._firsts
            and not any(part.startswith(text) or text.startswith(part) for text in self._spellings)
        }

    def needed(self, text: str, mark: str) -> str:
        """Return a rendered ``text`` with only those marks that break the spelling of a special token."""
        if mark not in text:
            return text

        def keep(found: re.Match[str]) -> str:
            plain = found[0].replace(mark, "")
            return plain[0] + mark + plain[1:] if plain and mark in found[0] else plain

        return self._marked_spelling(mark).sub(keep, text)

    def _marked_spelling(self, mark: str) -> re.Pattern[str]:
        """The spelling of a special token, with marks in it or not, or else a mark."""
        if mark in self._patterns:
            return self._patterns[mark]
        spelt = (
            "".join(re.escape(char) + (mark + "?" if char in self._firsts else "") for char in spelling)
            for spelling in sorted(self._spellings, key=len, reverse=True)
        )
        return self._patterns.setdefault(mark, re.compile("|".join([*spelt, mark])))


def _texts(value: Any) -> Iterator[str]:
    """Every text in a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts(key)
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)
