"""Keep users' texts from being tokenized as special tokens, by marking them before a template renders them.

A mark follows each character of a user's text with which a special token could begin. The tokenizer reads a marked
spelling as text. All other marks are removed after rendering, so a prompt without such spellings keeps its tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from pumice.errors import RequestError

if TYPE_CHECKING:
    from pumice.tokenizers import Tokenizer

_MARKS = tuple(map(chr, range(0xFDD0, 0xFDF0)))  # Unicode's noncharacters, which texts should not contain
# The last alternative skips escapes outside of strings, whose quotes would otherwise open one.
_LITERAL = re.compile(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"|\\.")
_USER_DEFINED = re.compile(r"<[|｜].*[|｜]>")


def special_spellings(tokenizer: Tokenizer) -> tuple[str, ...]:
    """Return the spellings of special tokens that users' texts must not produce, sorted."""
    vocabulary = tokenizer.vocabulary
    spellings = {vocabulary.tokens[token] for token in vocabulary.hidden} | {
        text for token in vocabulary.user_defined if _USER_DEFINED.fullmatch(text := vocabulary.tokens[token])
    }
    return tuple(sorted(spellings))


def tokenize_marked(tokenizer: Tokenizer, text: str, mark: str) -> list[int]:
    """Return the tokens of a marked prompt; BOS is added if the model wants it and the template did not write it."""
    ids = tokenizer.tokenize(text, add_special=False, mark=mark)
    bos = tokenizer.bos
    return [bos, *ids] if tokenizer.add_bos and bos is not None and ids[:1] != [bos] else ids


@lru_cache(maxsize=8)
def guard_of(spellings: tuple[str, ...], source: str) -> Guard:
    return Guard(spellings, source)


class Guard:
    """Marks users' texts for one template and vocabulary.

    Some templates search messages for literals, such as ``</think>``. Literals of the template's source stay unmarked
    unless they begin a special token.
    """

    def __init__(self, spellings: Iterable[str], source: str) -> None:
        """``spellings``: result of ``special_spellings``; ``source``: source of the template."""
        self._spellings = {spelling for spelling in spellings if spelling}
        self._firsts = "".join(sorted({text[0] for text in self._spellings}))
        self._unmarked = self._fragments(source)
        self._patterns: dict[str, re.Pattern[str]] = {}  # by the mark

    def mark(self, *values: Any) -> tuple[str, list[Any]]:
        """Return a mark that occurs in none of ``values``, and the values with their strings marked."""
        written = "".join(_texts(values))
        mark = next((mark for mark in _MARKS if mark not in written), None)
        if mark is None:
            raise RequestError(
                "the messages contain every Unicode noncharacter from U+FDD0 to U+FDEF; remove at least one of them"
            )
        return mark, [self._marked(value, mark) for value in values] if self._firsts else list(values)

    def _marked(self, value: Any, mark: str) -> Any:
        if isinstance(value, str):
            return self._matcher.sub(lambda match: match[0] if len(match[0]) > 1 else match[0] + mark, value)
        if isinstance(value, Mapping):
            return {self._marked(key, mark): self._marked(item, mark) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._marked(item, mark) for item in value]
        return value

    @cached_property
    def _matcher(self) -> re.Pattern[str]:
        """Pattern of an unmarked fragment, or of a character that begins a special token."""
        fragments = sorted(self._unmarked, key=len, reverse=True)
        return re.compile("|".join([*map(re.escape, fragments), f"[{re.escape(self._firsts)}]"]))

    def _fragments(self, source: str) -> set[str]:
        """Return the parts of the template's literals that begin with a special token's first character only."""
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
        """Return rendered ``text`` with only the marks that break the spelling of a special token."""
        if mark not in text:
            return text

        def keep(match: re.Match[str]) -> str:
            plain = match[0].replace(mark, "")
            return plain[0] + mark + plain[1:] if plain and mark in match[0] else plain

        return self._marked_spelling(mark).sub(keep, text)

    def _marked_spelling(self, mark: str) -> re.Pattern[str]:
        """Return a pattern of a special token's spelling, with or without marks inside, or of a lone mark."""
        if mark in self._patterns:
            return self._patterns[mark]
        spelt = (
            "".join(re.escape(char) + (mark + "?" if char in self._firsts else "") for char in spelling)
            for spelling in sorted(self._spellings, key=len, reverse=True)
        )
        return self._patterns.setdefault(mark, re.compile("|".join([*spelt, mark])))


def _texts(value: Any) -> Iterator[str]:
    """Yield every string in a nested value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts(key)
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)
