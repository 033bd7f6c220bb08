"""Choosing backends: the one the configuration names, and those in line behind it."""

from __future__ import annotations

from pumice.backend import Backend
from pumice.config import Config
from pumice.errors import BackendError
from pumice.registry import Registry


def backend_line(registry: Registry, config: Config) -> list[tuple[str, Backend]]:
    """The backends of one model, in line: what the first does not claim goes to the next.

    ``auto`` takes every available backend in the configured order; a name takes that one, then the
    available ones configured after it that are not GPUs. Raises BackendError where none can run.
    """
    names = list(config.backends)
    if config.backend != "auto":
        chosen = registry.backends.find(config.backend)
        reason = chosen.unavailable()
        if reason:
            raise BackendError(f"backend {config.backend}: {reason}")
        behind = names[names.index(config.backend) + 1 :] if config.backend in names else names
        fallbacks = [name for name in behind if name in registry.backends and not registry.backends[name].offload]
        names = [config.backend, *fallbacks]
    usable = [name for name in names if name in registry.backends and not registry.backends[name].unavailable()]
    if not usable:
        raise BackendError(f"no backend is available (configured: {', '.join(names) or 'none'}); see `pumice plugins`")
    return [(name, _make(registry, config, name)) for name in usable]


def _make(registry: Registry, config: Config, name: str) -> Backend:
    cls = registry.backends[name]
    return cls(cls.Options(**config.backend_options(name)))
