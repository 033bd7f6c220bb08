"""Encode texts to vectors. Texts of many requests share steps, packed without padding; hidden states are pooled."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pumice.architecture import HEAD
from pumice.backend.step import Batch, Limits
from pumice.engine.batches import Part, Place, batch_of
from pumice.engine.kv_cache import KVCache
from pumice.engine.media import MediaRows
from pumice.engine.messages import Encode, Encoded, Event, Failed, Pooling
from pumice.engine.runner import Runner
from pumice.errors import RequestError

Rows = NDArray[np.float32]


class Places(Protocol):
    """Allocates places of sequences. With ``must``, generations are preempted if necessary."""

    limits: Limits

    def take_place(self, must: bool) -> Place | None:
        """Return a place, or None if none is free."""

    def hold(self, place: Place, n_past: int, n_new: int, must: bool) -> bool:
        """Hold blocks for ``n_new`` more positions; return False if there are too few."""

    def give_back(self, place: Place) -> None: ...

    preempt_others: Callable[[Place | None], bool]
    """Called with the place that needs a slot or blocks if no generation is left to preempt."""


@dataclass(frozen=True)
class PreparedTexts:
    """A command with what its spans stand for.

    Attributes:
        command: the command.
        texts: its texts, with negative ids at positions of media.
        media: rows of the media of each text; empty if no text has any.
    """

    command: Encode
    texts: Sequence[Sequence[int]]
    media: Sequence[MediaRows | None] = ()

    @property
    def id(self) -> int:
        return self.command.id


@dataclass(eq=False)
class _Job:
    """A request, and the results of its texts, ``n_left`` of which are to come."""

    command: Encode
    values: list[Rows | None]
    n_left: int


@dataclass(eq=False)
class _Text:
    """A text in progress. ``rows``: hidden states of the tokens that its pooling needs."""

    job: _Job
    index: int
    tokens: Sequence[int]
    media: MediaRows | None = None
    n_past: int = 0
    place: Place | None = None
    rows: list[Rows] = field(default_factory=list)

    @property
    def left(self) -> Sequence[int]:
        return self.tokens[self.n_past :]

    @property
    def pooling(self) -> Pooling:
        return self.job.command.pooling

    @property
    def n_together(self) -> int:
        """The next positions that attend to each other in both directions, which one step reads; 0 for others."""
        return self.media.n_together(self.tokens[self.n_past]) if self.media and self.left else 0

    def before_media(self, n: int) -> int:
        """Return ``n``, or fewer next tokens up to positions that one step reads together."""
        media = self.media
        if media is None or not media.together:
            return n
        return next((i for i, token in enumerate(self.left[:n]) if token < 0 and media.n_together(token)), n)

    def wanted(self, n_new: int) -> list[int]:
        """Return the next tokens whose hidden states are needed."""
        if self.pooling == "cls":
            return [0] if self.n_past == 0 else []
        if self.pooling == "last":
            return [n_new - 1] if n_new == len(self.left) else []
        return list(range(n_new))

    def part(self, n_new: int) -> Part:
        """Return its next tokens as part of a batch."""
        assert self.place is not None
        scales = self.job.command.adapter_scales
        return Part(self.place, self.left[:n_new], self.n_past, self.wanted(n_new), scales, self.media)

    def pooled(self) -> Rows:
        """Return the pooled hidden states: ``[1, n_embd]``, or ``[n_tokens, n_embd]``."""
        rows = np.concatenate(self.rows)
        return rows.mean(axis=0, keepdims=True, dtype=np.float64).astype(np.float32) if self.pooling == "mean" else rows


class Encodings:
    """The texts that an engine encodes, in order of arrival."""

    def __init__(self, runner: Runner, cache: KVCache, places: Places) -> None:
        self._runner = runner
        self._cache = cache
        self._places = places
        places.preempt_others = self._preempt
        self._waiting: list[_Text] = []
        self._placed: list[_Text] = []
        self._events: list[Event] = []

    @property
    def busy(self) -> bool:
        return bool(self._waiting or self._placed)

    @property
    def _wants_whole(self) -> bool:
        return self._runner.embedder is not None and self._runner.wants_whole(self._runner.embedder)

    def add(self, texts: PreparedTexts) -> None:
        """Queue texts; an empty list is answered at once."""
        job = _Job(texts.command, [None] * len(texts.texts), len(texts.texts))
        pairs = zip(texts.texts, texts.media or [None] * len(texts.texts), strict=True)
        self._waiting += [_Text(job, index, *pair) for index, pair in enumerate(pairs)]
        if not texts.texts:
            self._events.append(Encoded(texts.id, []))

    def cancel(self, ids: Container[int]) -> None:
        """Cancel these requests."""
        self._fail(
            [text for text in self._all if text.job.command.id in ids], RequestError("the request was cancelled")
        )

    def fail(self, error: Exception) -> None:
        """End all by an error."""
        self._fail(self._all, error)

    def drain(self) -> list[Event]:
        """Return the events since the last call."""
        events, self._events = self._events, []
        return events

    def step(self) -> None:
        """Compute one batch. On an error, the requests in it fail, and the error is raised."""
        members = self._members()
        if not members:
            return
        try:
            self._take(members, self._compute(members))
        except Exception as error:
            self._fail([text for text, _ in members], error)
            raise

    # --- selection of texts

    def _members(self) -> list[tuple[_Text, int]]:
        """Return texts and their numbers of tokens for the next batch: started texts first, then those that fit.

        An image whose positions attend to each other is alone.
        """
        members: list[tuple[_Text, int]] = []
        room = self._places.limits.n_batch
        for text in [*self._placed, *self._waiting]:
            if n_together := text.n_together:
                if members:
                    continue
                return [(text, n_together)] if self._enter(text, n_together, must=True) else []
            n_new = min(len(text.left), room)
            is_cut = n_new < len(text.left)
            n_new = text.before_media(n_new)
            if n_new == 0 or (members and is_cut and self._wants_whole):
                break
            if not self._enter(text, n_new, must=not members):
                break
            members.append((text, n_new))
            room -= n_new
        return members

    def _enter(self, text: _Text, n_new: int, must: bool) -> bool:
        """Allocate a place for a text, and blocks for its next tokens.

        The first text always gets them: others restart.
        """
        if text.place is None:
            text.place = self._places.take_place(must)
            if text.place is None:
                return False
            self._waiting.remove(text)
            self._placed.append(text)
        while not self._places.hold(text.place, text.n_past, n_new, must):
            others = [other for other in self._placed if other is not text]
            self._begin_anew(others[-1] if must and others else text)
            if text.place is None:
                return False
        return True

    def _preempt(self, place: Place | None) -> bool:
        """Preempt the text that began last, except that of ``place``; return False if there is none."""
        text = next((text for text in reversed(self._placed) if text.place is not place), None)
        if text:
            self._begin_anew(text)
        return text is not None

    def _begin_anew(self, text: _Text) -> None:
        self._leave(text)
        text.n_past, text.rows = 0, []
        self._waiting.insert(0, text)

    def _leave(self, text: _Text) -> None:
        if text.place is not None:
            self._placed.remove(text)
            self._places.give_back(text.place)
            text.place = None

    # --- results

    def _compute(self, members: Sequence[tuple[_Text, int]]) -> Rows:
        """Return the needed hidden states of the members, concatenated."""
        parts = [text.part(n_new) for text, n_new in members]
        assert self._runner.embedder is not None, "the model gives no hidden states"
        return self._runner.outputs(replace(batch_of(self._cache, parts), exact=True), self._runner.embedder)["hidden"]

    def _take(self, members: Sequence[tuple[_Text, int]], hidden: Rows) -> None:
        first = 0
        finished = []
        for text, n_new in members:
            n_rows = len(text.wanted(n_new))
            text.rows.append(hidden[first : first + n_rows].copy())
            first += n_rows
            text.n_past += n_new
            if not text.left:
                self._leave(text)
                finished.append(text)
        for scores in (False, True):
            self._finish(
                [text for text in finished if text.job.command.scores is scores], "scores" if scores else "embedding"
            )

    def _finish(self, texts: Sequence[_Text], output: str) -> None:
        """Pass pooled hidden states through the model's head, if it has one, and report finished requests."""
        if not texts:
            return
        pooled = [text.pooled() for text in texts]
        values = self._head(np.concatenate(pooled), output)
        bounds = np.cumsum([len(rows) for rows in pooled])
        for text, rows in zip(texts, np.split(values, bounds[:-1]), strict=True):
            job = text.job
            job.values[text.index] = rows if text.pooling == "none" else rows[0]
            job.n_left -= 1
            if not job.n_left:
                self._events.append(Encoded(job.command.id, [value for value in job.values if value is not None]))

    def _head(self, rows: Rows, output: str) -> Rows:
        if output not in self._runner.results(HEAD):
            return rows
        most = self._places.limits.n_seqs
        parts = [rows[first : first + most] for first in range(0, len(rows), most)]
        return np.concatenate([self._runner.outputs(_rows_alone(part), HEAD)[output].copy() for part in parts])

    # --- the end of requests

    def _fail(self, texts: Iterable[_Text], error: Exception) -> None:
        jobs = list(dict.fromkeys(text.job for text in texts))
        self._events += [Failed(job.command.id, error) for job in jobs]
        self._drop(jobs)

    def _drop(self, jobs: Container[_Job]) -> None:
        for text in [text for text in self._placed if text.job in jobs]:
            self._leave(text)
        self._waiting = [text for text in self._waiting if text.job not in jobs]

    @property
    def _all(self) -> list[_Text]:
        return [*self._placed, *self._waiting]


def _rows_alone(rows: Rows) -> Batch:
    """Return a batch of sequences with one row each."""
    zeros, order = np.zeros(len(rows), np.int32), np.arange(len(rows) + 1, dtype=np.int32)
    return Batch(zeros, zeros, zeros[:0], order, order[:-1], {}, inputs={"pooled": rows}, exact=True)
