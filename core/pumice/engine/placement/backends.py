"""Choose backends and their GPUs: the configured ones, and others for operations that they do not support."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from inspect import isfunction
from typing import Any

from pumice.backend import Backend
from pumice.config import ARGUMENTS, Config
from pumice.engine.placement.overrides import HOST, DeviceName, parse_device
from pumice.errors import BackendError, ConfigError, PluginError, PumiceError
from pumice.guard import guard, guarded
from pumice.options.reading import SettingsReader
from pumice.registry import Registry
from pumice.switching import frequent_switches
from pumice.wording import counted_as

NONE = "none"
_METHODS = [name for name, member in vars(Backend).items() if isfunction(member) and not name.startswith("_")]
Line = list[tuple[str, Backend]]
logger = logging.getLogger("pumice")


def named_devices(config: Config) -> list[DeviceName] | None:
    """Return the GPUs that ``devices`` names, all of one backend; None if it names none. Empty: use no GPU.

    Raises ConfigError for a text that is no device, or devices of several backends.
    """
    if not config.devices:
        return None
    source = config.source("devices")
    where = "devices" if source == ARGUMENTS else f"{source}: devices"
    if NONE in [name.lower() for name in config.devices]:
        if len(config.devices) > 1:
            raise ConfigError(f"{where}: {NONE!r} stands alone, in {', '.join(config.devices)!r:.200}")
        return []
    devices = []
    for text in config.devices:
        device = parse_device(text)
        if device is None:
            raise ConfigError(f"{where}: {text!r} is not a device such as Vulkan0, or none; see `pumice devices`")
        if device != HOST:
            devices.append(device)
    if len({device.backend for device in devices}) > 1:
        raise ConfigError(f"{where}: {', '.join(map(str, devices))} belong to several backends; name those of one")
    if len(set(devices)) < len(devices):
        raise ConfigError(f"{where}: {', '.join(map(str, devices))}: a device is named twice")
    return devices


def choose_gpus(name: str, backend: type[Backend], config: Config) -> dict[str, Any]:
    """Return the options of a GPU backend's section, with the ``devices`` that the configuration asks for.

    Raises BackendError for a device that does not exist, or if the backend cannot choose.
    """
    options = config.backend_options(name)
    if not backend.offload:
        return options
    named = named_devices(config)
    if named is None and config.split_mode == "auto":
        return options
    n_devices = len(backend.devices())
    if named is None:
        named = [DeviceName(name, number) for number in _gpus(backend)]
    for device in named:
        if device.number >= n_devices:
            count = counted_as(n_devices, "device")
            raise BackendError(f"devices: no device {device}: {name} has {count}; see `pumice devices`")
    if config.split_mode == "none":
        if config.main_gpu >= len(named):
            raise BackendError(f"main_gpu is {config.main_gpu}, but the last chosen device is {len(named) - 1}")
        named = [named[config.main_gpu]]
    if "devices" not in {field.name for field in dataclasses.fields(backend.Options)}:
        if len(named) > 1 or named[0].number:
            raise BackendError(f"devices: backend {name} uses its first device only")
        return options
    return {**options, "devices": [device.number for device in named]}


def _gpus(backend: type[Backend]) -> Sequence[int]:
    """Return the numbers of a backend's GPUs, or of all devices if none of them is a GPU."""
    devices = backend.devices()
    return [i for i, device in enumerate(devices) if device.kind == "gpu"] or range(len(devices))


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
                try:
                    backend.close()
                except PumiceError as error:
                    logger.warning("%s", error)
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


def open_backends(stack: ExitStack, registry: Registry, config: Config) -> Line:
    """Return ``backend_line``, which ``stack`` closes."""
    line = backend_line(registry, config)
    for _, backend in line:
        stack.callback(backend.close)
    return line


def _without_other_gpus(registry: Registry, names: list[str], named: set[str]) -> list[str]:
    """Return the backends without the GPU backends that ``devices`` does not name.

    Raises BackendError for a named one that cannot run.
    """
    for name in named:
        if name not in registry.backends or not registry.backends[name].offload:
            raise BackendError(
                f"devices: unknown GPU backend {name!r}; `pumice devices` lists the devices, such as Vulkan0"
            )
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
    made = guarded(backend, f"{where}: __init__")(SettingsReader(name).record(backend.Options, options))
    made.title = where
    guard(made, where, _METHODS)
    return made
