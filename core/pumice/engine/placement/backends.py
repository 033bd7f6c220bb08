"""Choose backends: the configured one, and others for the operations that it does not support."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future

from pumice.backend import Backend
from pumice.config import Config
from pumice.engine.placement.gpus import choose_gpus, named_devices
from pumice.engine.placement.guarded import make_backend
from pumice.errors import BackendError, PluginError, PumiceError
from pumice.guard import guarded
from pumice.registry import Registry
from pumice.switching import frequent_switches

Line = list[tuple[str, Backend]]

logger = logging.getLogger("pumice")


class OpeningBackends:
    """A line of backends, in which a thread opens GPUs while the model's file is read and traced.

    A driver of a GPU takes 0.1 s to list its devices, and another 0.1 to open one, in hundreds of calls. Meanwhile
    threads switch often: else each call would wait 5 ms for Python's lock.
    """

    def __init__(self, registry: Registry, config: Config) -> None:
        self.registry = registry
        self._line: Future[Line] = Future()
        self._opened: Future[None] = Future()
        self._closed = False
        opening = threading.Thread(target=self._open, args=[registry, config], name="pumice-backends")
        try:
            if _may_have_gpus(registry, config):
                opening.start()
        except RuntimeError as error:
            logger.info("devices are opened without a thread: %s", error)
        if opening.ident is None:
            self._open(registry, config)

    @property
    def line(self) -> Line:
        """The backends in order, whose GPUs may not be open yet. Raises like ``backend_line``."""
        return self._line.result()

    def wait(self, meanwhile: Callable[[], None] | None = None) -> None:
        """Wait until the thread no longer uses the backends. Raises PumiceError if a GPU cannot be opened.

        ``meanwhile`` is called unless it has ended.
        """
        if meanwhile and not self._opened.done():
            meanwhile()
        self._opened.result()

    def close(self) -> None:
        """Close the backends, once."""
        self._opened.exception()
        if not self._closed and not self._line.exception():
            for _, backend in self.line:
                backend.close()
        self._closed = True

    def _open(self, registry: Registry, config: Config) -> None:
        try:
            with frequent_switches():
                line = backend_line(registry, config)
                self._line.set_result(line)
                for _, backend in line:
                    if backend.offload:
                        backend.free_memory()
            self._opened.set_result(None)
        except BaseException as error:
            if not self._line.done():
                self._line.set_exception(error)
            self._opened.set_exception(error)


def _may_have_gpus(registry: Registry, config: Config) -> bool:
    """Return True if a line may have a backend of GPUs."""
    names = config.backends if config.backend == "auto" else [config.backend]
    with contextlib.suppress(PumiceError):  # the line raises it
        return any(registry.backends.find(name).offload for name in names if name in registry.backends)
    return False


def backend_line(registry: Registry, config: Config) -> Line:
    """Return the backends of a model in order: each node goes to the first one that supports it.

    ``auto`` takes every available backend in the configured order, with a warning for those that fail. A name takes
    that backend, then the available ones after it that are not GPUs. Raises BackendError if none can run, and
    PluginError if the named one fails or several plugins claim a name.
    """
    names = [name for name in config.backends if name in registry.backends]
    gpus = named_devices(config)
    if gpus is not None:
        names = _without_other_gpus(registry, names, {device.backend for device in gpus})
    line: Line = []
    if config.backend != "auto":
        if gpus is not None and registry.backends.find(config.backend).offload and config.backend not in names:
            named = ", ".join(config.devices)
            raise BackendError(f"devices: {named} is not a device of the backend {config.backend}; change one of both")
        reason = unavailable(registry, config.backend)
        if reason:
            raise BackendError(f"backend {config.backend}: {reason}")
        line.append((config.backend, configured_backend(registry, config, config.backend)))
        behind = names[names.index(config.backend) + 1 :] if config.backend in names else names
        names = [name for name in behind if not registry.backends[name].offload]
    for name in names:
        if conflict := registry.backends.conflict(name):
            raise PluginError(conflict)
        try:
            if _automatic(registry, name) and not unavailable(registry, name):
                line.append((name, configured_backend(registry, config, name)))
        except PluginError as error:
            logger.warning("%s; continuing without it", error)
    if not line:
        raise BackendError(f"no backend is available (backends: {', '.join(config.backends)}); see `pumice devices`")
    return line


def _without_other_gpus(registry: Registry, names: list[str], named: set[str]) -> list[str]:
    """Return the backends without the GPU backends that ``devices`` does not name.

    Raises BackendError for a named one that cannot run.
    """
    for name in named:
        if name not in registry.backends or not registry.backends[name].offload:
            raise BackendError(f"devices: {name} is no GPU backend; see `pumice devices`")
        if reason := unavailable(registry, name):
            raise BackendError(f"devices: backend {name}: {reason}")
    return [name for name in names if name in named or not registry.backends[name].offload]


def unavailable(registry: Registry, name: str) -> str | None:
    """Return why a backend cannot run here; None if it can. Raises PluginError if the check fails."""
    backend = registry.backends.find(name)
    return guarded(backend.unavailable, f"{registry.backends.describe(name)}: unavailable")()


def _automatic(registry: Registry, name: str) -> bool:
    backend = registry.backends.find(name)
    return guarded(backend.automatic, f"{registry.backends.describe(name)}: automatic")()


def configured_backend(registry: Registry, config: Config, name: str) -> Backend:
    """Return a backend with the options of the configuration. Raises PumiceError."""
    backend, where = registry.backends[name], registry.backends.describe(name)
    options = guarded(choose_gpus, f"{where}: devices")(name, backend, config)
    return make_backend(backend, options, where)
