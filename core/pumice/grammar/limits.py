"""How large a grammar may be: what is checked before a grammar library sees it, and what the library may spend on it.

The numbers of the first part are far beyond what clients send, and low enough that compiling stays within a second.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, TypeVar

from pumice.errors import RequestError

if TYPE_CHECKING:
    from llguidance import LLParserLimits

MAX_SOURCE = 1 << 18  # characters of a schema or a grammar
MAX_GENERATED = 1 << 20  # characters of the grammar of all tool calls
MAX_DEPTH = 64  # levels of a schema, of parentheses, or of braces
MAX_CHAIN = 512  # levels of a schema whose references are followed, or of rules that name each other
MAX_RULES = 1 << 12  # of a grammar
MAX_ELEMENTS = 1 << 12  # alternatives or elements of one rule, entries of one list or object of a schema, choices
MAX_VALUES = 1 << 15  # of a schema: objects, lists, texts, numbers
MAX_PROPERTIES = 1 << 10  # of one object of a schema
MAX_TEXT = 1 << 13  # characters of a literal, a name, a pattern or a regular expression
MAX_MULTIPLE = 1 << 15  # of ``multipleOf``, which takes as many states of a lexer: 0.3 s to compile, 100,000 take 1.4 s
MAX_COUNT = (1 << 31) - 1  # of a repetition, a length or a number of items

STACK_SIZE = 64 << 20  # bytes of the stack on which grammars are compiled: a level of a chain takes up to 10 KiB

T = TypeVar("T")


def check_number(place: str, what: str, n: int, most: int) -> None:
    """Raise RequestError, which names the place and the limit, for more than ``most``."""
    if n > most:
        raise RequestError(f"{place}: {n} {what} are too many; at most {most} are allowed")


def check_chain(
    place: str, what: str, root: T, inner: Callable[[T], Iterable[T]], key: Callable[[T], Hashable]
) -> None:
    """Raise RequestError where things lie in each other more than ``MAX_CHAIN`` deep; ``inner``: those in one.

    Each is entered once, as compilers do: what contains itself ends there.
    """
    seen, waiting = {key(root)}, [iter(inner(root))]
    while waiting:
        item = next((item for item in waiting[-1] if key(item) not in seen), None)
        if item is None:
            waiting.pop()
            continue
        if len(waiting) > MAX_CHAIN:
            raise RequestError(f"{place}: {what} are nested too deeply; at most {MAX_CHAIN} levels are allowed")
        seen.add(key(item))
        waiting.append(iter(inner(item)))


def parser_limits() -> LLParserLimits:
    """Work and memory that llguidance may spend; beyond them a grammar fails, at once or at the step that needs more.

    Of its own limits two are lower: states of a lexer, which take 1 to 2 KB each, and items of a parser. 10,000 items
    take 50 ms at worst and 50,000, its own limit, 10 to 20 times as long; common schemas need less than 2,000.
    """
    from llguidance import LLParserLimits

    return LLParserLimits(max_lexer_states=25_000, step_max_items=10_000, verbose_errors=False)
