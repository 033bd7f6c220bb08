"""Compiled grammars, kept to be used again; of one whose masks take long there are several, for as many threads."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakSet

from pumice.host import cores

if TYPE_CHECKING:
    from llguidance import LLMatcher

    from pumice.grammar.strings import StringMasks

MOST = min(8, cores())  # of one grammar; more threads gain little, as the mask that takes longest is one thread's
LONG = 1e-4  # seconds; where masks take longer on average, sequences that come have a lexer of their own
_KEPT = 32  # lexers; the one used longest ago goes first
_FADING = 64  # masks after which half of what was known of their times is forgotten, about


@dataclass(eq=False)
class Lexer:
    """A compiled grammar. Copies of its matcher share what they find out, and wait for each other in threads.

    Attributes:
        matcher: at the start of the grammar.
        strings: makes one sequence's masks inside strings; None: nothing is known of them.
        users: of its matcher's copies.
        seconds: that a mask takes, a mean that fades.
    """

    matcher: LLMatcher
    strings: Callable[[], StringMasks] | None = None
    users: WeakSet[object] = field(default_factory=WeakSet)
    seconds: float = 0.0

    def took(self, seconds: float) -> None:
        """Note the time of a mask."""
        self.seconds += (seconds - self.seconds) / _FADING


class Lexers:
    """Lexers of grammars in llguidance's form. Several threads may use it at once."""

    def __init__(self, compile: Callable[[str], Lexer]) -> None:
        self._compile = compile
        self._kept: OrderedDict[tuple[str, int], Lexer] = OrderedDict()
        self._compiling: dict[tuple[str, int], Future[Lexer]] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def of(self, source: str, user: object) -> Lexer:
        """One for a new user of a grammar, which it knows as long as that lives. Errors are those of ``compile``."""
        with self._lock:
            key = (source, self._number(source))
            lexer, compiling = self._kept.get(key), self._compiling.get(key)
            is_first = lexer is None and compiling is None
            if is_first:
                compiling = self._compiling[key] = Future()
        if lexer is None:
            assert compiling
            lexer = self._make(key, compiling) if is_first else compiling.result()
        with self._lock:
            self._keep(key, lexer)
            lexer.users.add(user)
        return lexer

    def _make(self, key: tuple[str, int], done: Future[Lexer]) -> Lexer:
        """Compile a grammar, while others may be had. Those who wait for ``done`` get the same, or its error."""
        try:
            done.set_result(self._compile(key[0]))
        except BaseException as error:
            done.set_exception(error)
        with self._lock:
            if not done.exception():
                self._keep(key, done.result())
            del self._compiling[key]
        return done.result()

    def _keep(self, key: tuple[str, int], lexer: Lexer) -> None:
        self._kept[key] = lexer
        self._kept.move_to_end(key)
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)

    def _number(self, source: str) -> int:
        """Which of a grammar's lexers: the first, or where its masks take long the first with the fewest users."""
        found = [self._kept.get((source, number)) for number in range(MOST)]
        if found[0] is None or found[0].seconds < LONG:
            return 0
        users = [len(lexer.users) if lexer else 0 for lexer in found]
        return users.index(min(users))
