"""Jobs: the sequences of all requests, whatever they compute, from their arrival to their end."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from pumice.engine.cache.blocks import BlockTables
from pumice.engine.media.rows import MediaRows
from pumice.engine.messages import DEFAULT_TERMS, EngineFinishReason, Event, Terms
from pumice.engine.requests.arguments import Scales
from pumice.engine.requests.batches import EncoderMemory, Place


class EncoderPrompt(NamedTuple):
    """Prompt of an encoder: token ids, or negative ids of ``media``."""

    tokens: Sequence[int]
    media: MediaRows | None = None


NOWHERE = BlockTables((), 0, 1)
"""The blocks of a job without a place."""


@dataclass(eq=False, kw_only=True)
class Job(Place, ABC):
    """A sequence that waits for a place in the KV cache, or has one.

    Attributes:
        id: that of its request's command.
        tokens: the sequence, with negative ids at positions of ``media``.
        media: rows of the negative ids.
        adapters: adapters in use.
        encoder_prompt: what an encoder reads before.
        terms: those of its request.
        arrived: ``time.perf_counter()`` when it was made.
        waits_since: steps computed before its arrival, or before it lost its place in the cache.
        turn: its turn among the jobs of all clients, which orders equal priorities.
        kind: jobs of one kind share steps.
        n_past: leading tokens whose keys and values are in the cache.
        admitted: steps computed before its admission.
        began: those before a next token could first be sampled.
        last_step: number of its last step.
        is_read: True if an encoder has read its prompt.
    """

    slot: int = -1
    tables: BlockTables = NOWHERE
    memory: EncoderMemory | None = None
    id: int = -1
    tokens: Sequence[int] = ()
    media: MediaRows | None = None
    adapters: Scales = ()
    encoder_prompt: EncoderPrompt | None = None
    terms: Terms = DEFAULT_TERMS
    arrived: float = field(default_factory=time.perf_counter)
    waits_since: int = 0
    turn: int = 0
    n_past: int = 0
    admitted: int = 0
    began: int | None = None
    last_step: int = 0
    is_read: bool = False
    kind: ClassVar[str]

    @property
    def deadline(self) -> float | None:
        """``time.perf_counter()`` of its latest end; None without one."""
        return None if self.terms.timeout is None else self.arrived + float(self.terms.timeout)

    @property
    def request_name(self) -> str | int:
        """The request that it belongs to, which may be that of several commands."""
        return self.id

    @property
    def siblings(self) -> Sequence[Job]:
        """All jobs of its request."""
        return [self]

    @property
    @abstractmethod
    def salt(self) -> bytes:
        """Salt of the keys of its blocks."""

    @property
    def ready(self) -> bool:
        """True unless another job reads its prompt."""
        return True

    @property
    @abstractmethod
    def known(self) -> Sequence[int]:
        """The tokens whose blocks other sequences may share."""

    @property
    def shareable(self) -> Sequence[int]:
        """The tokens whose blocks may come from earlier sequences; at least the last of them is computed."""
        return self.known

    @property
    def pending(self) -> int:
        """The number of tokens to compute."""
        return len(self.tokens) - self.n_past

    @property
    def reads_on(self) -> bool:
        """True if more than the last generated token is to compute: a prompt, or forced tokens."""
        return True

    @property
    def n_together(self) -> int:
        """The next positions that attend to each other in both directions, which one step reads; 0 for tokens."""
        if self.media is None or self.n_past >= len(self.tokens):
            return 0
        return self.media.n_together(self.tokens[self.n_past])

    def before_media(self, n: int) -> int:
        """Return ``n``, or fewer next tokens up to positions that one step reads together."""
        media = self.media
        if media is None or not media.together:
            return n
        tokens = self.tokens[self.n_past : self.n_past + n]
        return next((i for i, token in enumerate(tokens) if token < 0 and media.n_together(token)), n)

    def enter(self, place: Place, n_past: int, step: int) -> None:
        """Take a place, whose blocks hold its first ``n_past`` tokens, after a number of computed steps."""
        self.slot, self.tables, self.memory = place.slot, place.tables, place.memory
        self.n_past, self.admitted, self.began, self.last_step, self.is_read = n_past, step, None, 0, False

    def leave(self) -> None:
        """Give up its place."""
        self.slot, self.tables, self.memory = -1, NOWHERE, None

    def loaded(self) -> list[Event]:
        """Note that ``n_past`` tokens need not be computed; return the events."""
        return []

    @abstractmethod
    def begin(self) -> None:
        """Note the end of its waiting time."""

    @abstractmethod
    def stop(self, reason: EngineFinishReason) -> list[Event]:
        """End it before its time; return the last events."""

    @abstractmethod
    def fail(self, error: Exception) -> list[Event]:
        """End it with an error; return the last events."""
