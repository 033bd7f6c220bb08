"""A model that can be served: its state, its users, and when it may be loaded again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException

import pumice
from pumice.plugin.unstable import ModelSpec
from pumice_server.service import Service
from pumice_server.variant import Variant

if TYPE_CHECKING:
    from pumice_server.service import AnyModel

FOREVER = float("inf")

_STEADY_SECONDS = 60.0  # of an engine that is no longer one that just crashed
_MAX_BACKOFF_SECONDS = 60.0


LoadProgress = Callable[[int, int], None]
Deliver = Callable[..., object]
Load = Callable[[ModelSpec, LoadProgress, Deliver], "AnyModel"]
"""Loads a model, in a thread; called with what hears how far it is, and with what brings its events to the loop."""


class ServedModel:
    """A served model. ``state`` is unloaded, loading, loaded or failed."""

    def __init__(self, spec: ModelSpec, keep_alive: float, fetched: frozenset[Path] = frozenset()) -> None:
        self.spec = spec
        self.fetched = fetched  # files that a client fetched, and may delete
        self.uploaded: Mapping[str, str] = {}  # digests of the files of which a client made it, by name
        self.folder: Path | None = None  # folder of links to these files and its adapters
        self.scales: dict[str, float] = {}  # of its LoRA adapters; they are known once it was loaded
        self.defaults: Variant | None = None  # how its chats begin, by its entry in the catalogue
        self.variants: dict[str, Variant] = {}  # names that clients made
        self.created = int(time.time())
        self.service: Service | None = None
        self.properties: Mapping[str, Any] | None = None  # last properties of a model that sleeps
        self.summary: pumice.Summary | None = None  # summary of its file, once it has been read
        self.loading: asyncio.Task[None] | None = None
        self.progress = (0, 0)  # steps of loading: done, in all
        self.load_seconds = 0.0
        self.error: Exception | None = None  # reason why it is not loaded
        self.n_crashes = 0  # in a row
        self.n_users = 0
        self.last_used = time.monotonic()
        self.keep_alive = keep_alive  # seconds that it stays loaded without a user
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

    def scales_of(self, model: AnyModel) -> dict[str, float]:
        """Return the scale of each LoRA adapter, in the model's order. Scales outlive a reload."""
        self.scales = {name: self.scales.get(name, model.config.adapters[name].scale) for name in model.loras}
        return self.scales

    @property
    def sleeps(self) -> bool:
        """True if the model was unloaded for being idle; the next request loads it again."""
        return self.properties is not None and self.state == "unloaded"

    @property
    def state(self) -> str:
        if self.service:
            return "loaded"
        if self.loading:
            return "loading"
        return "failed" if self.error else "unloaded"

    @property
    def size(self) -> int:
        """Bytes of the model in memory, or expected once it is loaded."""
        return sum(self.service.model.memory.values()) if self.service else self.spec.size

    @property
    def idle(self) -> bool:
        """True if the model may be unloaded."""
        return self.service is not None and self.n_users == 0

    @property
    def expires(self) -> float:
        """Time at which the model is unloaded if it stays idle (``time.monotonic``)."""
        return self.last_used + self.keep_alive

    @property
    def wait_seconds(self) -> float:
        """Seconds until the model may be loaded again, doubled after each crash."""
        return max(0.0, self._retry_at - time.monotonic())

    def loaded(self, service: Service, seconds: float) -> None:
        self.service, self.error, self.load_seconds = service, None, seconds
        self.last_used = self._loaded_at = time.monotonic()

    def failed(self, error: Exception) -> None:
        """Note that loading failed or the engine died. After the first time, loading may be retried at once."""
        now = time.monotonic()
        steady = self.service is not None and now - self._loaded_at > _STEADY_SECONDS
        self.n_crashes = 1 if steady else self.n_crashes + 1
        wait = 0.0 if self.n_crashes == 1 else min(_MAX_BACKOFF_SECONDS, 2.0 ** (self.n_crashes - 2))
        self.service, self.error, self._retry_at = None, error, now + wait

    def check_unused(self) -> None:
        """Raise HTTPException if the model is in use or being loaded."""
        if self.n_users or self.loading:
            raise HTTPException(409, f"{self.name} is in use")

    def unloaded(self) -> AnyModel | None:
        """Remove and return the model, for the caller to close, and reset the count of consecutive crashes."""
        service, self.service = self.service, None
        self.error = None
        if service:
            self.n_crashes = 0
        return service.model if service else None
