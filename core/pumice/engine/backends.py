"""Choosing backends: the one the configuration names, and those in line behind it."""

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
    """The backends of one model, in line: what the first does not claim goes to the next.

    ``auto`` takes every available backend in the configured order, and warns of those that fail; a name takes that one,
    then the available ones configured after it that are not GPUs. Raises BackendError where none can run, and
    PluginError where the one that is named fails, or several plugins claim one of the names.
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
            logger.warning("%s; going on without it", error)
    if not line:
        raise BackendError(f"no backend is available (configured: {', '.join(names) or 'none'}); see `pumice devices`")
    return line


def unavailable(registry: Registry, name: str) -> str | None:
    """Why a backend cannot run here; None if it can. Raises PluginError if it fails to say."""
    backend = registry.backends.find(name)
    return guarded(backend.unavailable, f"{registry.backends.describe(name)}: unavailable")()


def _automatic(registry: Registry, name: str) -> bool:
    backend = registry.backends.find(name)
    return guarded(backend.automatic, f"{registry.backends.describe(name)}: automatic")()


def _make(registry: Registry, config: Config, name: str) -> Backend:
    return make_backend(registry.backends[name], config.backend_options(name), registry.backends.describe(name))
