"""A model that can be served: its state, its users, and when it may be loaded again.

``TRANSITIONS`` is the state machine. Requests that wait for a model are counted apart from those that use it, and are
no part of the state: they may wait for an absent model until there is room for it.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from enum import StrEnum
from pathlib import Path
from typing import Final

from starlette.exceptions import HTTPException

import pumice
from pumice.plugin.unstable import ModelSpec
from pumice_server.answer_types import Properties
from pumice_server.models.model_service import ModelService
from pumice_server.models.variant import Variant

FOREVER = float("inf")

_STEADY_SECONDS = 60.0  # of an engine that is no longer one that just crashed
_MAX_BACKOFF_SECONDS = 60.0


LoadProgress = Callable[[int, int], None]
Deliver = Callable[..., object]
Load = Callable[[ModelSpec, LoadProgress, Deliver], pumice.Model]
"""Loads a model, in a thread; called with what hears how far it is, and with what brings its events to the loop."""


class State(StrEnum):
    """State of a served model."""

    ABSENT = "absent"
    LOADING = "loading"
    READY = "ready"
    BUSY = "busy"
    DRAINING = "draining"
    FAILED = "failed"


class Change(StrEnum):
    """What changes the state of a served model."""

    LOAD = "a load begins"
    LOADED = "the load ends"
    GIVE_UP = "the load is cancelled, or finds no memory beside other models"
    FAIL = "the load fails"
    USE = "a first request uses it"
    LEAVE = "the last request ends"
    UNLOAD = "it is unloaded, evicted, or idle for too long"
    STOP = "the server stops"
    CLOSE = "its memory is free"
    DIE = "its engine dies"


TRANSITIONS: Final[Mapping[tuple[State, Change], State]] = {
    (State.ABSENT, Change.LOAD): State.LOADING,
    (State.LOADING, Change.LOADED): State.READY,
    (State.LOADING, Change.GIVE_UP): State.ABSENT,
    (State.LOADING, Change.FAIL): State.FAILED,
    (State.READY, Change.USE): State.BUSY,
    (State.READY, Change.UNLOAD): State.DRAINING,
    (State.READY, Change.STOP): State.DRAINING,
    (State.READY, Change.DIE): State.FAILED,
    (State.BUSY, Change.LEAVE): State.READY,
    (State.BUSY, Change.STOP): State.DRAINING,
    (State.BUSY, Change.DIE): State.FAILED,
    (State.DRAINING, Change.CLOSE): State.ABSENT,
    (State.FAILED, Change.LOAD): State.LOADING,
}
"""The state after each change; no other change is possible. docs/server.md has it as a table."""

_STATUS = {State.ABSENT: "unloaded", State.READY: "loaded", State.BUSY: "loaded", State.DRAINING: "unloaded"}
"""llama-server's names of states, where they differ."""


class ServedModel:
    """A served model, used by the event loop alone. ``service`` is set while it is ready or busy."""

    def __init__(self, spec: ModelSpec, keep_alive: float, fetched: frozenset[Path] = frozenset()) -> None:
        self.spec = spec
        self.fetched = fetched  # files that a client fetched, and may delete
        self.uploaded: Mapping[str, str] = {}  # digests of the files of which a client made it, by name
        self.folder: Path | None = None  # folder of links to these files and its adapters
        self.scales: dict[str, float] = {}  # of its LoRA adapters; configured, until it was loaded
        self.defaults: Variant | None = None  # how its chats begin, by its entry in the catalogue
        self.variants: dict[str, Variant] = {}  # names that clients made
        self.created = int(time.time())  # noqa: TID251 (shown)
        self.state = State.ABSENT
        self.service: ModelService | None = None
        self.loading: asyncio.Task[None] | None = None
        self.properties: Properties | None = None  # last properties of a model that sleeps
        self.summary: pumice.Summary | None = None  # summary of its file, once it has been read
        self.media: Sequence[str] = ()  # kinds of media that it takes, by this file and the projector beside it
        self.progress = (0, 0)  # steps of loading: done, in all
        self.error: Exception | None = None  # reason why it failed
        self.is_too_large = False  # it found too little memory although no other model was loaded
        self.n_crashes = 0  # in a row
        self.n_users = 0
        self.n_waiting = 0  # requests that wait until it is loaded
        self.asked_at = 0.0  # when the first of them came
        self.is_asked_for = False  # since the last load began: a request whose load failed gets its error
        self.most_beside: float = math.inf  # models beside which it may find enough memory
        self.last_used = time.monotonic()
        self.keep_alive = keep_alive  # seconds that it stays loaded without a user
        self._changed = asyncio.Event()
        self._retry_at = 0.0
        self._loaded_at = 0.0

    @property
    def name(self) -> str:
        return self.spec.names[0]

    @property
    def names(self) -> list[str]:
        """Every name that requests may use. An adapter's name means the model with that adapter alone."""
        own = self.spec.names
        return [*own, *self.variants, *self.scales, *(f"{name}:{adapter}" for name in own for adapter in self.scales)]

    def scales_of(self, model: pumice.Model) -> dict[str, float]:
        """Return the scale of each LoRA adapter, in the model's order. Scales outlive a reload."""
        scales = {name: self.scales.get(name, model.config.adapters[name].scale) for name in model.facts.loras}
        self.scales.clear()
        self.scales.update(scales)
        return self.scales

    def adapters_changed(self, model: pumice.Model) -> None:
        """Note that adapters of the loaded model came or went, which later loads shall have."""
        self.scales_of(model)
        adapters = {name: asdict(options) for name, options in model.config.adapters.items()}
        config = {**self.spec.options.get("config", {}), "adapters": adapters}
        self.spec = replace(self.spec, options={**self.spec.options, "config": config})

    @property
    def status(self) -> str:
        """The state by llama-server's name."""
        return _STATUS.get(self.state, self.state)

    @property
    def sleeps(self) -> bool:
        """True if the model was loaded, and has left memory or is leaving it; the next request loads it again."""
        return self._loaded_at > 0 and self.status == "unloaded"

    @property
    def size(self) -> int:
        """Bytes of the model in memory, or expected once it is loaded."""
        return sum(self.service.model.memory.values()) if self.service else self.spec.size

    @property
    def is_idle(self) -> bool:
        """True if the model may be unloaded."""
        return self.state is State.READY and not self.n_waiting

    @property
    def expires(self) -> float:
        """Time at which the model is unloaded if it stays idle (``time.monotonic``)."""
        return self.last_used + self.keep_alive

    @property
    def wait_seconds(self) -> float:
        """Seconds until the model may be loaded again, doubled after each crash."""
        return max(0.0, self._retry_at - time.monotonic()) if self.state is State.FAILED else 0.0

    @property
    def is_wanted(self) -> bool:
        """True if requests wait for a load that may begin."""
        return (
            self.is_asked_for
            and self.n_waiting > 0
            and (self.state, Change.LOAD) in TRANSITIONS
            and not self.wait_seconds
        )

    def check_unused(self) -> None:
        """Raise HTTPException if the model is in use or being loaded."""
        if self.n_waiting or self.state in (State.BUSY, State.LOADING):
            raise HTTPException(409, f"{self.name} is in use")

    async def change(self, seconds: float | None = None) -> None:
        """Wait until the state changes. Raises TimeoutError."""
        async with asyncio.timeout(seconds):
            await self._changed.wait()

    async def drained(self) -> None:
        """Wait while the model leaves memory."""
        while self.state is State.DRAINING:
            await self.change()

    def wake(self) -> None:
        """Let the requests that wait for the model look again."""
        self._changed.set()
        self._changed = asyncio.Event()

    # --- waiting and using

    def expect(self) -> None:
        """Count a request that waits for the model."""
        if not self.n_waiting:
            self.asked_at, self.most_beside = time.monotonic(), math.inf
        self.n_waiting += 1

    def use(self) -> ModelService | None:
        """Return the service, and count a user of it; None if the model is not loaded."""
        if self.service:
            if self.state is State.READY:
                self.move(Change.USE)
            self.n_users += 1
        return self.service

    def leave(self, service: ModelService) -> None:
        """End a use. A service whose engine has died meanwhile has no users any more."""
        if service is self.service:
            self.last_used = time.monotonic()
            self.n_users -= 1
            if not self.n_users:
                self.move(Change.LEAVE)

    # --- loading and unloading

    def begin(self, loading: asyncio.Task[None]) -> None:
        self.move(Change.LOAD)
        self.loading, self.progress, self.is_asked_for = loading, (0, 0), False

    def loaded(self, service: ModelService) -> None:
        self.move(Change.LOADED)
        self.service, self.error, self.is_too_large = service, None, False
        self.last_used = self._loaded_at = time.monotonic()

    def failed(self, error: Exception) -> None:
        """Note that loading failed or the engine died. After the first time, loading may be retried at once."""
        now = time.monotonic()
        steady = self.service is not None and now - self._loaded_at > _STEADY_SECONDS
        self.move(Change.DIE if self.service else Change.FAIL)
        self.n_crashes = 1 if steady else self.n_crashes + 1
        wait = 0.0 if self.n_crashes == 1 else min(_MAX_BACKOFF_SECONDS, 2.0 ** (self.n_crashes - 2))
        self.service, self.n_users, self.error, self._retry_at = None, 0, error, now + wait

    def drain(self, change: Change = Change.UNLOAD) -> ModelService:
        """Remove and return the service of a loaded model, whose model the caller closes.

        This resets the count of consecutive crashes.
        """
        assert self.service is not None
        self.move(change)
        service, self.service = self.service, None
        self.n_users, self.n_crashes = 0, 0
        return service

    def move(self, change: Change) -> None:
        """Change the state, and let waiting requests look. Raises RuntimeError for a change that it does not have."""
        if (self.state, change) not in TRANSITIONS:
            raise RuntimeError(f"{self.name} is {self.state}: not a state in which {change}")
        self.state = TRANSITIONS[self.state, change]
        if self.state is not State.LOADING:
            self.loading = None
        self.wake()
