"""A cache of compiled grammars. Grammars with slow masks are compiled several times, so that threads can share them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakSet

from pumice.machine import cores

if TYPE_CHECKING:
    from llguidance import LLMatcher

    from pumice.grammar.strings import StringMasks

MAX_COPIES = min(8, cores())  # of one grammar; the slowest mask takes one thread, so more copies gain little
SLOW_MASK = 1e-4  # mean seconds per mask above which new sequences get their own copy
_MAX_CACHED = 32  # compiled grammars; the least recently used one is removed first
_FADING = 64  # masks over which the mean time is averaged


@dataclass(eq=False)
class Lexer:
    """A compiled grammar. Copies of its matcher share a lexer, whose lock serializes them across threads.

    Attributes:
        matcher: matcher at the start of the grammar.
        strings: returns the ``StringMasks`` of a new sequence; None if the grammar has none.
        users: objects that use a copy of the matcher.
        seconds: moving average of the seconds per mask.
    """

    matcher: LLMatcher
    strings: Callable[[], StringMasks] | None = None
    users: WeakSet[object] = field(default_factory=WeakSet)
    seconds: float = 0.0

    def took(self, seconds: float) -> None:
        """Record the time of a mask in seconds."""
        self.seconds += (seconds - self.seconds) / _FADING


class Lexers:
    """A cache of compiled grammars in llguidance's form. Threads may share it."""

    def __init__(self, compile: Callable[[str], Lexer]) -> None:
        self._compile = compile
        self._kept: OrderedDict[tuple[str, int], Lexer] = OrderedDict()
        self._compiling: dict[tuple[str, int], Future[Lexer]] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def of(self, source: str, user: object) -> Lexer:
        """Return a compiled grammar for a new user, which is counted while it lives. Raises like ``compile``."""
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
        """Compile a grammar without holding the lock. Threads that wait for ``done`` get its result or error."""
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
        while len(self._kept) > _MAX_CACHED:
            self._kept.popitem(last=False)

    def _number(self, source: str) -> int:
        """Return the number of the copy to use: 0, or, if masks are slow, the first one with the fewest users."""
        lexers = [self._kept.get((source, number)) for number in range(MAX_COPIES)]
        if lexers[0] is None or lexers[0].seconds < SLOW_MASK:
            return 0
        users = [len(lexer.users) if lexer else 0 for lexer in lexers]
        return users.index(min(users))
