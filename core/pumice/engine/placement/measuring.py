"""Measure the rates of devices for a plan, or once before a model is loaded whose weights do not fit GPUs."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from functools import partial

from pumice.config import Config
from pumice.engine.placement.backends import backend_line
from pumice.engine.placement.costs import StepPart
from pumice.engine.placement.overrides import DeviceName
from pumice.engine.placement.rates import Rates, measure_rates, measure_types, rates_folder, rates_of
from pumice.gguf import GGMLType
from pumice.guard import guarded
from pumice.registry import Registry

logger = logging.getLogger("pumice")

_LEAST_SHARE = 0.05  # of the bytes of products, for a type whose rates are measured
_LOCK_SECONDS = 60.0  # to wait for another process that measures


def measure_devices(
    devices: Collection[DeviceName],
    parts: Sequence[StepPart],
    registry: Registry,
    config: Config,
) -> dict[DeviceName, Rates]:
    """Return the rates of devices, measured if they are not known; those of a backend's devices are taken to be equal.

    Args:
        devices: devices that hold something of a model.
        parts: costs of the model's segments, whose types of weights are measured.
        registry: registered plugins.
        config: options of the backends.

    Raises:
        PumiceError: a device cannot be measured.
    """
    rates: dict[DeviceName, Rates] = {}
    for device in devices:
        name, _ = device
        measured = next((rates[other] for other in rates if other[0] == name), None)
        if measured is not None:
            rates[device] = measured
            continue
        where = registry.backends.describe(name)
        infos = guarded(registry.backends[name].devices, f"{where}: devices")()
        if infos:
            measure = partial(_measure, name, registry, config)
            types = _types_of([part for part in parts if part.device.backend == name])
            rates[device] = rates_of(name, infos[0], config.backend_options(name), types, measure)
    return rates


def measure_before_loading(parts: Sequence[StepPart], registry: Registry, config: Config) -> bool:
    """Measure the devices of a model's segments, and return True if that succeeded; a failure is a warning.

    A second process that starts meanwhile waits, and takes the rates of the first. Standard error has a line if it is
    a terminal.
    """
    devices = dict.fromkeys(part.device for part in parts)
    names = " and ".join(dict.fromkeys(device.backend for device in devices))
    if sys.stderr is not None and sys.stderr.isatty():
        text = f"measuring {names} once, since the model is larger than the GPU's memory (--no-measure leaves it out)"
        sys.stderr.write(f"{text}\n")
    try:
        with _measuring_alone():
            measure_devices(devices, parts, registry, config)
    except Exception as error:
        logger.warning("%s cannot be measured, so the placement goes without rates: %s", names, error)
        return False
    return True


@contextlib.contextmanager
def _measuring_alone() -> Iterator[None]:
    """Hold the lock of the folder of rates. Without a folder that can be written, or after a minute, go on without."""
    from filelock import FileLock, Timeout

    with ExitStack() as stack:
        with contextlib.suppress(OSError, Timeout):
            if folder := rates_folder():
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                stack.enter_context(FileLock(folder / ".lock", timeout=_LOCK_SECONDS))
        yield


def gpu_shares(parts: Sequence[StepPart]) -> bool:
    """Return True if a model's segments use a GPU, and leave at least 5 % of its products' weights in host memory."""
    sizes = {True: 0, False: 0}
    for part in parts:
        sizes[part.offload] += sum(node.weight_bytes for node in part.nodes if node.type)
    return sizes[True] > 0 and sizes[False] >= _LEAST_SHARE * sum(sizes.values())


def _types_of(parts: Sequence[StepPart]) -> list[GGMLType]:
    """Return the types of the weights of products that have a share worth measuring."""
    sizes: Counter[str] = Counter()
    for part in parts:
        for node in part.nodes:
            sizes[node.type] += node.weight_bytes
    del sizes[""]
    return [GGMLType[type] for type, size in sizes.items() if size >= _LEAST_SHARE * sizes.total()]


def _measure(
    name: str,
    registry: Registry,
    config: Config,
    kept: Rates | None,
    types: Sequence[GGMLType],
) -> Rates:
    """Measure a backend by an instance of its own, whose memory is free again for the plan."""
    with ExitStack() as stack:
        backends = backend_line(registry, config.model_copy(update={"backend": name, "devices": []}))
        for _, backend in backends:
            stack.callback(backend.close)
        backend = dict(backends)[name]
        return measure_types(name, backend, kept or measure_rates(name, backend), types)
