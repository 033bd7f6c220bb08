"""Limits of grammars: sizes checked before llguidance reads a grammar, and work that llguidance may spend on it.

The sizes are far above those of real requests, and low enough that compiling takes less than a second.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, TypeVar

from pumice.errors import RequestError

if TYPE_CHECKING:
    from llguidance import LLParserLimits

MAX_SOURCE = 1 << 18  # characters of a schema or a grammar
MAX_GENERATED = 1 << 20  # characters of the grammar of all tool calls
MAX_DEPTH = 64  # levels of nesting in a schema, of parentheses, or of braces
MAX_CHAIN = 512  # levels of nesting with references followed, in a schema or between rules
MAX_RULES = 1 << 12  # rules of a grammar
MAX_ELEMENTS = 1 << 12  # elements of one rule, entries of one list or object of a schema, or choices
MAX_VALUES = 1 << 15  # objects, lists, strings and numbers in a schema
MAX_PROPERTIES = 1 << 10  # properties of one object of a schema
MAX_TEXT = 1 << 13  # characters of a literal, a name, a pattern or a regular expression
MAX_MULTIPLE = 1 << 15  # ``multipleOf`` takes as many lexer states: 0.3 s to compile; 100,000 take 1.4 s
MAX_COUNT = (1 << 31) - 1  # value of a repetition, a length or a number of items

STACK_SIZE = 64 << 20  # bytes of the stack for compiling grammars, which needs up to 10 KiB per level of a chain

T = TypeVar("T")


def check_number(where: str, what: str, n: int, most: int) -> None:
    """Raise RequestError if ``n`` is above ``most``; ``where`` and ``what`` name the part and the unit."""
    if n > most:
        raise RequestError(f"{where}: {n} {what} are too many; at most {most} are allowed")


def check_chain(
    where: str, what: str, root: T, inner: Callable[[T], Iterable[T]], key: Callable[[T], Hashable]
) -> None:
    """Raise RequestError if items are nested deeper than ``MAX_CHAIN``. Cycles count once, as in compilers.

    Args:
        where: name of the grammar or schema in the error.
        what: name of the items in the error, in the plural.
        root: outermost item.
        inner: returns the items inside an item.
        key: returns the identity of an item.
    """
    visited, waiting = {key(root)}, [iter(inner(root))]
    while waiting:
        item = next((item for item in waiting[-1] if key(item) not in visited), None)
        if item is None:
            waiting.pop()
            continue
        if len(waiting) > MAX_CHAIN:
            raise RequestError(f"{where}: {what} are nested too deeply; at most {MAX_CHAIN} levels are allowed")
        visited.add(key(item))
        waiting.append(iter(inner(item)))


def parser_limits() -> LLParserLimits:
    """Return limits on llguidance's work and memory. A grammar that exceeds them fails, when compiled or at a step.

    Two limits are below llguidance's defaults: lexer states, which take 1 to 2 KB each, and parser items. 10,000 items
    take at most 50 ms, and 50,000, the default, 10 to 20 times as long; common schemas need fewer than 2,000.
    """
    from llguidance import LLParserLimits

    return LLParserLimits(max_lexer_states=25_000, step_max_items=10_000, verbose_errors=False)
