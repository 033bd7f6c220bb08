"""What an engine in another process has been asked for, and therefore may say: its events are checked against that."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from operator import itemgetter

from pumice.engine.messages import (
    Accepted,
    Add,
    Answer,
    Ask,
    Command,
    Encode,
    Encoded,
    Event,
    Facts,
    Failed,
    Finished,
    Logprobs,
    Output,
    Progress,
    Request,
    Score,
    Scored,
)
from pumice.errors import EngineError
from pumice.process.codec import MAX_BYTES, MAX_LOADING_BYTES

_FIRST = itemgetter(0)
_SMALL = 1 << 16  # bytes of a message that has neither vectors nor log-probabilities
_TOP_BYTES = 16  # of a token and its log-probability


class Awaited:
    """The completions and answers that an engine owes; ``facts`` once they are known. Any thread may use it.

    Each id ends with one event. Those of other ids are left out: ``Accepted`` may come after a short completion's end.
    """

    def __init__(self) -> None:
        self.facts: Facts | None = None
        self._owed: dict[int, tuple[_Generation | Encode | Score | Ask, int]] = {}  # with the bytes that it may take
        self._max_bytes = MAX_BYTES
        self._lock = threading.Lock()  # of what senders change too
        self._n_strays = 0  # events that nobody waited for, less those that there may be

    @property
    def max_bytes(self) -> int:
        """Most bytes of a message now: more than usual where large answers are owed."""
        return self._max_bytes if self.facts else MAX_LOADING_BYTES

    def add(self, command: Command) -> None:
        """An engine is asked."""
        if isinstance(command, Add):
            for id in command.ids:
                self._put(id, _Generation(command.request))
        elif isinstance(command, (Encode, Score, Ask)):
            self._put(command.id, command)

    def check(self, events: Sequence[Event]) -> list[Event]:
        """Those of ids that are owed. Raises EngineError for an event that its command has no use for."""
        n_vocab, heard = self._n_vocab, []
        for event in events:
            command, size = self._owed.get(event.id, (None, 0))
            if type(event) is Output and type(command) is _Generation:
                command.take(event, n_vocab)
            elif command is None:
                self._count_stray(event)
                continue
            elif not self._fits(command, event):
                raise EngineError(f"a wrong answer to the request {event.id}: {type(event).__name__}")
            elif not isinstance(event, (Accepted, Progress)):
                with self._lock:
                    del self._owed[event.id]
                    self._max_bytes -= size
            heard.append(event)
        return heard

    def _count_stray(self, event: Event) -> None:
        self._n_strays += 1
        if self._n_strays > 0:
            raise EngineError(f"an event of the request {event.id}, which is none or has ended")

    def _put(self, id: int, command: _Generation | Encode | Score | Ask) -> None:
        size = self._size(command)
        with self._lock:
            self._owed[id] = command, size
            self._max_bytes += size
            self._n_strays -= 1

    @property
    def _n_vocab(self) -> int:
        return self.facts.n_vocab if self.facts else 0

    def _fits(self, command: _Generation | Encode | Score | Ask, event: Event) -> bool:
        if isinstance(event, Failed):
            return True
        if isinstance(command, _Generation):
            return isinstance(event, (Accepted, Progress, Finished))
        if isinstance(command, Ask):
            return isinstance(event, Answer)
        if isinstance(command, Score):
            if not isinstance(event, Scored) or len(event.logprobs) != max(0, len(command.tokens) - 1):
                return False
            return _known(event.logprobs, command.n_top, self._n_vocab)
        return isinstance(event, Encoded) and [each.shape for each in event.values] == self._shapes(command)

    def _shapes(self, command: Encode) -> list[tuple[int, ...]]:
        if self.facts is None:
            return []
        width = self.facts.n_labels if command.scores else self.facts.n_embd
        whole = command.pooling == "none" and not command.scores
        return [(len(text), width) if whole else (width,) for text in command.texts]

    def _size(self, command: _Generation | Encode | Score | Ask) -> int:
        """Most bytes of the largest message that answers a command, beyond what any message may have."""
        if isinstance(command, Encode):
            return sum(4 * math.prod(shape) + _SMALL for shape in self._shapes(command))
        if isinstance(command, Score):
            return len(command.tokens) * _TOP_BYTES * (2 + min(command.n_top, self._n_vocab))
        if isinstance(command, _Generation):
            return _TOP_BYTES * min(command.n_logprobs or 0, self._n_vocab)
        return 0


class _Generation:
    """What is left of a completion."""

    __slots__ = ("_n_left", "n_logprobs")

    def __init__(self, request: Request) -> None:
        most = request.max_tokens
        self.n_logprobs = request.logprobs
        self._n_left = math.inf if most is None or most < 0 else most

    def take(self, output: Output, n_vocab: int) -> None:
        """Raises EngineError for tokens that were not asked for, or that are none."""
        tokens, found = output.tokens, output.logprobs
        n = len(tokens)
        self._n_left -= n
        right = n > 0 and len(output.texts) == n and max(tokens) < n_vocab and self._n_left >= 0
        if found is not None:
            most = self.n_logprobs
            right = right and most is not None and len(found) == n and _known(found, most, n_vocab)
        elif self.n_logprobs is not None:
            right = False
        if not right:
            raise EngineError(f"wrong tokens of the request {output.id}")


def _known(logprobs: Sequence[Logprobs], n_top: int, n_vocab: int) -> bool:
    """Whether there are no more of the likeliest tokens than asked for, all of the vocabulary."""
    for each in logprobs:
        top = each.top
        if len(top) > n_top or (top and max(map(_FIRST, top)) >= n_vocab):
            return False
    return True
