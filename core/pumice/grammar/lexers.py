"""Compiled grammars, kept to be used again; of one whose masks take long there are several, for as many threads."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
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
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def of(self, source: str, user: object) -> Lexer:
        """One for a new user of a grammar, which it knows as long as that lives. Errors are those of ``compile``."""
        with self._lock:
            key = (source, self._number(source))
            if key not in self._kept:
                self._kept[key] = self._compile(source)
            self._kept.move_to_end(key)
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
            self._kept[key].users.add(user)
            return self._kept[key]

    def _number(self, source: str) -> int:
        """Which of a grammar's lexers: the first, or where its masks take long the first with the fewest users."""
        found = [self._kept.get((source, number)) for number in range(MOST)]
        if found[0] is None or found[0].seconds < LONG:
            return 0
        users = [len(lexer.users) if lexer else 0 for lexer in found]
        return users.index(min(users))
