"""Choose backends: the configured one, and the ones that take what it does not support."""

from __future__ import annotations

import logging

from pumice.backend import Backend
from pumice.config import Config
from pumice.engine.guarded import make_backend
from pumice.errors import BackendError, PluginError
from pumice.guard import guarded
from pumice.registry import Registry

logger = logging.getLogger("pumice")


def backend_line(registry: Registry, config: Config) -> list[tuple[str, Backend]]:
    """Return the backends of a model in order: each node goes to the first one that supports it.

    ``auto`` takes every available backend in the configured order, with a warning for those that fail. A name takes
    that backend, then the available ones after it that are not GPUs. Raises BackendError if none can run, and
    PluginError if the named one fails or several plugins claim a name.
    """
    names = [name for name in config.backends if name in registry.backends]
    line: list[tuple[str, Backend]] = []
    if config.backend != "auto":
        reason = unavailable(registry, config.backend)
        if reason:
            raise BackendError(f"backend {config.backend}: {reason}")
        line.append((config.backend, _make(registry, config, config.backend)))
        behind = names[names.index(config.backend) + 1 :] if config.backend in names else names
        names = [name for name in behind if not registry.backends[name].offload]
    for name in names:
        if conflict := registry.backends.conflict(name):
            raise PluginError(conflict)
        try:
            if _automatic(registry, name) and not unavailable(registry, name):
                line.append((name, _make(registry, config, name)))
        except PluginError as error:
            logger.warning("%s; continuing without it", error)
    if not line:
        raise BackendError(f"no backend is available (configured: {', '.join(names) or 'none'}); see `pumice devices`")
    return line


def unavailable(registry: Registry, name: str) -> str | None:
    """Return why a backend cannot run here; None if it can. Raises PluginError if the check fails."""
    backend = registry.backends.find(name)
    return guarded(backend.unavailable, f"{registry.backends.describe(name)}: unavailable")()


def _automatic(registry: Registry, name: str) -> bool:
    backend = registry.backends.find(name)
    return guarded(backend.automatic, f"{registry.backends.describe(name)}: automatic")()


def _make(registry: Registry, config: Config, name: str) -> Backend:
    return make_backend(registry.backends[name], config.backend_options(name), registry.backends.describe(name))
