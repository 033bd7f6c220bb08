"""One model that can be served: how it is loaded, whether it is, and who uses it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.exceptions import HTTPException

import pumice
from pumice_server.service import AnyModel, Service

FOREVER = float("inf")

_STEADY_SECONDS = 60.0  # of an engine that is no longer one that just crashed
_MAX_BACKOFF_SECONDS = 60.0


@dataclass(frozen=True)
class Spec:
    """A model and how it is loaded.

    Attributes:
        names: what it is called by; answers carry the first.
        path: any name of a model; ``options``: further arguments of ``pumice.load``.
        size: bytes that it takes, as far as that is known before it is loaded.
        tags: words that lists of models show with it.
    """

    names: Sequence[str]
    path: str
    options: Mapping[str, Any] = field(default_factory=dict)
    size: int = 0
    tags: Sequence[str] = ()


Load = Callable[[Spec, Callable[[int, int], None], Callable[..., object]], AnyModel]
"""Loads a model, in a thread; called with what hears how far it is, and with what brings its events to the loop."""


class Entry:
    """A model among those served. ``state`` is unloaded, loading, loaded or failed."""

    def __init__(self, spec: Spec, keep_alive: float) -> None:
        self.spec = spec
        self.scales: dict[str, float] = {}  # of its LoRA adapters; they are known once it was loaded
        self.created = int(time.time())
        self.service: Service | None = None
        self.properties: Mapping[str, Any] | None = None  # what /props told last, of a model that sleeps
        self.summary: pumice.Summary | None = None  # of its file, once it was asked for
        self.loading: asyncio.Task[None] | None = None
        self.progress = (0, 0)  # steps of loading: done, in all
        self.load_seconds = 0.0
        self.error: Exception | None = None  # why it is not loaded
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
        """All that requests may call it by: with the name of an adapter they mean the model with that one alone."""
        own = self.spec.names
        return [*own, *self.scales, *(f"{name}:{adapter}" for name in own for adapter in self.scales)]

    def scales_of(self, model: AnyModel) -> dict[str, float]:
        """How strong each LoRA adapter is, in the model's order; that stays when it is loaded again."""
        self.scales = {name: self.scales.get(name, model.config.adapters[name].scale) for name in model.loras}
        return self.scales

    @property
    def sleeps(self) -> bool:
        """Whether it was unloaded since nobody used it, and the next request loads it again."""
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
        """Bytes that it takes, or will."""
        return sum(self.service.model.memory.values()) if self.service else self.spec.size

    @property
    def idle(self) -> bool:
        """Whether it may be unloaded."""
        return self.service is not None and self.n_users == 0

    @property
    def expires(self) -> float:
        """When it is unloaded, on the clock of ``time.monotonic``, if nobody uses it until then."""
        return self.last_used + self.keep_alive

    @property
    def wait_seconds(self) -> float:
        """Until it may be loaded again: twice as long after each crash."""
        return max(0.0, self._retry_at - time.monotonic())

    def loaded(self, service: Service, seconds: float) -> None:
        self.service, self.error, self.load_seconds = service, None, seconds
        self.last_used = self._loaded_at = time.monotonic()

    def failed(self, error: Exception) -> None:
        """It could not be loaded, or its engine died. The first time it may be loaded again at once."""
        now = time.monotonic()
        steady = self.service is not None and now - self._loaded_at > _STEADY_SECONDS
        self.n_crashes = 1 if steady else self.n_crashes + 1
        wait = 0.0 if self.n_crashes == 1 else min(_MAX_BACKOFF_SECONDS, 2.0 ** (self.n_crashes - 2))
        self.service, self.error, self._retry_at = None, error, now + wait

    def check_unused(self) -> None:
        """Raises HTTPException if it is used, or being loaded."""
        if self.n_users or self.loading:
            raise HTTPException(409, f"{self.name} is in use")

    def unloaded(self) -> AnyModel | None:
        """Take the model out, to be closed."""
        service, self.service = self.service, None
        self.error = None
        return service.model if service else None
