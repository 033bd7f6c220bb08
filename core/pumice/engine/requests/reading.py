"""Requests that read given tokens for rows of outputs: scores, logits, embeddings, and steps of diffusion."""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from pumice.clients import cancelled_request
from pumice.engine.messages import (
    DEFAULT_TERMS,
    Encode,
    EngineFinishReason,
    Event,
    Failed,
    Logprobs,
    Pooling,
    ReadLayers,
    Score,
    Terms,
)
from pumice.engine.requests.batches import Part
from pumice.engine.requests.generation import salt_of
from pumice.engine.requests.job import Job
from pumice.engine.requests.outputs import log_totals, raw_logprobs
from pumice.errors import RequestTimeoutError

T = TypeVar("T")

Rows = NDArray[np.float32]
Kind = Literal["logits", "hidden", "align", "speak", "measure"]
"""Work that shares steps: rows of logits, of hidden states, of queries or of both, or steps that are measured."""

LAYERS = "layers "
"""The beginning of the kind of readings of layers, before the names of their sites."""


@dataclass(eq=False)
class ReadRequest(Generic[T]):
    """A request that is answered once all of its readings have a value.

    Attributes:
        id: that of its command; a negative one without a command.
        answer: called with the values; returns the last events.
        fail: called with an error instead; returns the last event, or None.
        terms: as in ``Job``.
        begun: True if one of its readings has had a place.
    """

    id: int
    answer: Callable[[list[T]], Sequence[Event]]
    fail: Callable[[Exception], Event | None]
    terms: Terms
    readings: list[Reading[T]] = field(default_factory=list)
    n_left: int = 0
    begun: bool = False

    def end(self) -> list[Event]:
        """Return the last event if all readings have a value."""
        return [] if self.n_left else [*self.answer([reading.value() for reading in self.readings])]

    def end_with(self, error: Exception) -> list[Event]:
        """Fail, and return the last event."""
        event = self.fail(error)
        return [event] if event else []


def with_event(command: Encode | Score | ReadLayers, answer: Callable[[list[T]], Event]) -> ReadRequest[T]:
    """Return the request of a command, which is answered by an event."""
    id = command.id
    return ReadRequest(id, lambda values: [answer(values)], lambda error: Failed(id, error), command.terms)


def with_future(id: int, future: Future[list[T]], terms: Terms = DEFAULT_TERMS) -> ReadRequest[T]:
    """Return a request without a command, which is answered by a future."""

    def answer(values: list[T]) -> list[Event]:
        with suppress(InvalidStateError):  # cancelled
            future.set_result(values)
        return []

    def fail(error: Exception) -> None:
        with suppress(InvalidStateError):
            future.set_exception(error)

    return ReadRequest(id, answer, fail, terms)


@dataclass(eq=False)
class Reading(Job, Generic[T]):
    """A sequence of given tokens, some of whose output rows are wanted.

    Attributes:
        request: what it belongs to.
        wanted: positions whose rows are wanted, ascending; the first ``n_done`` of them are known.
        shares: True if its blocks are those of any request with these tokens.
        whole: True if each step computes the whole sequence.
        grows: the rows of a step decide the next tokens.
    """

    request: ReadRequest[T]
    wanted: Sequence[int]
    cache_salt: str = ""
    shares: bool = False
    n_done: int = 0
    whole: bool = False
    stops_at_rows: ClassVar[bool] = False
    grows: ClassVar[bool] = False
    kind: ClassVar[Kind] = "logits"

    def __post_init__(self) -> None:
        self.id, self.terms = self.request.id, self.request.terms
        self.request.readings.append(self)
        self.request.n_left += 1

    @property
    def siblings(self) -> Sequence[Job]:
        return self.request.readings

    @property
    def salt(self) -> bytes:
        return salt_of(self.cache_salt, self.adapters)

    @property
    def shareable(self) -> Sequence[int]:
        return self.tokens[: self.wanted[self.n_done] + 1] if self.shares and not self.done else ()

    @property
    def done(self) -> bool:
        return self.n_done == len(self.wanted)

    @abstractmethod
    def take(self, rows: Rows) -> None:
        """Take the next wanted rows; they are valid until the call returns."""

    @abstractmethod
    def value(self) -> T:
        """Return the result, once it is done."""

    def took(self, first: int, n_new: int, seconds: float) -> None:
        """Note the seconds of a step that read ``n_new`` tokens after the first ``first`` ones."""

    def added_rows(self, start: int, end: int) -> Rows | None:
        """Return rows that are added to the embeddings of tokens; None for none."""
        return None

    def events(self) -> list[Event]:
        """Return events before the last."""
        return []

    @property
    def known(self) -> Sequence[int]:
        return self.tokens if self.shares else ()

    @property
    def reads_on(self) -> bool:
        return self.pending > 1 or not self.grows

    def wanted_rows(self, n_new: int, n_rows: int) -> Sequence[int]:
        """Return the positions of the wanted rows among the next ``n_new`` tokens, at most ``n_rows`` of them."""
        end = bisect_left(self.wanted, self.n_past + n_new, lo=self.n_done)
        return self.wanted[self.n_done : min(end, self.n_done + n_rows)]

    def fit(self, n_new: int, n_rows: int) -> int:
        """Return ``n_new``, or fewer next tokens that have no more than ``n_rows`` wanted rows."""
        wanted, n_done = self.wanted, self.n_done
        if self.whole:
            return n_new
        if self.stops_at_rows and n_done < len(wanted):
            n_new = min(n_new, wanted[n_done] + 1 - self.n_past)
        if n_done + n_rows < len(wanted):
            n_new = min(n_new, wanted[n_done + n_rows] - self.n_past)
        return n_new

    def part(self, n_new: int, rows: Sequence[int]) -> Part:
        """Return its next tokens as part of a batch, with these positions' rows as outputs."""
        end = self.n_past + n_new
        outputs = [row - self.n_past for row in rows]
        part = Part(self, self.tokens[self.n_past : end], self.n_past, outputs, self.adapters, self.media)
        return part._replace(rows=self.added_rows(self.n_past, end))

    def begin(self) -> None:
        self.request.begun = True

    def end(self) -> list[Event]:
        """Note that it is done; return the last events of its request, if all of them are done."""
        self.request.n_left -= 1
        return self.request.end()

    def stop(self, reason: EngineFinishReason) -> list[Event]:
        seconds = self.terms.timeout if reason == "timeout" else None
        return self.fail(cancelled_request() if seconds is None else RequestTimeoutError(seconds))

    def fail(self, error: Exception) -> list[Event]:
        return self.request.end_with(error)


@dataclass(eq=False)
class LogitRows(Reading[Rows]):
    """Rows of outputs: logits ``[len(wanted), n_vocab]``."""

    rows: list[Rows] = field(default_factory=list)

    def take(self, rows: Rows) -> None:
        self.rows.append(rows.copy())

    def value(self) -> Rows:
        return np.concatenate(self.rows)


@dataclass(eq=False)
class LayerRows(LogitRows):
    """Rows ``[len(tokens), len(sites), n]`` of each of ``sites`` in the graph, for all tokens."""

    sites: Sequence[str] = ()

    @property
    def kind(self) -> str:  # type: ignore[override]  # readings of the same sites share steps
        return LAYERS + " ".join(self.sites)


@dataclass(eq=False)
class Scores(Reading[list[Logprobs]]):
    """The log-probabilities of the tokens after the first, and of ``n_top`` alternatives each."""

    n_top: int = 0
    logprobs: list[Logprobs] = field(default_factory=list)

    def take(self, rows: Rows) -> None:
        targets = self.tokens[1 + len(self.logprobs) :]
        for row, total, target in zip(rows, log_totals(rows, [True] * len(rows)), targets, strict=False):
            self.logprobs.append(raw_logprobs(row, total, target, self.n_top))

    def value(self) -> list[Logprobs]:
        return self.logprobs


@dataclass(eq=False)
class TextRows(LogitRows):
    """Hidden states of a text, pooled to its embedding ``[n]``, or ``[n_tokens, n]`` without pooling.

    ``scores``: the model's head turns them into scores.
    """

    pooling: Pooling = "mean"
    scores: bool = False
    result: Rows | None = None
    kind: ClassVar[Kind] = "hidden"

    def pooled(self) -> Rows:
        """Return the pooled hidden states: ``[1, n_embd]``, or ``[n_tokens, n_embd]``."""
        rows = super().value()
        return rows.mean(axis=0, keepdims=True, dtype=np.float64).astype(np.float32) if self.pooling == "mean" else rows

    def value(self) -> Rows:
        assert self.result is not None
        return self.result


def wanted_by(pooling: Pooling, n_tokens: int) -> Sequence[int]:
    """Return the positions whose hidden states a pooling needs."""
    if pooling == "cls":
        return range(1)
    return range(n_tokens - 1, n_tokens) if pooling == "last" else range(n_tokens)


@dataclass(eq=False)
class MeasuredSteps(Reading[float]):
    """Seconds of the steps after the first ``depth`` tokens; ``progress`` gets the tokens read, and all."""

    depth: int = 0
    progress: Callable[[int, int], None] | None = None
    seconds: float = 0.0
    stops_at_rows: ClassVar[bool] = True
    kind: ClassVar[Kind] = "measure"

    def take(self, rows: Rows) -> None: ...

    def took(self, first: int, n_new: int, seconds: float) -> None:
        if first >= self.depth:
            self.seconds += seconds
        if self.progress:
            self.progress(first + n_new, len(self.tokens))

    def value(self) -> float:
        return self.seconds


ReadMembers = list[tuple[Reading[Any], int]]
"""The readings of a step, with their numbers of tokens."""
