"""The plan of a model: its parts on each device, and the largest context."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from itertools import chain
from typing import Any

from pumice.architecture import Architecture
from pumice.backend import Backend
from pumice.backend.step import Limits
from pumice.config import Config
from pumice.engine.placement.backends import open_backends
from pumice.engine.placement.fitting import fit_model, has_room, largest_context
from pumice.engine.placement.overrides import HOST, DeviceName, parse_device
from pumice.engine.placement.placed import LATER
from pumice.engine.placement.placement import Backends, PlacementRules, find_placement
from pumice.engine.placement.sizing import BLOCK_SIZE, EngineSizes, Held, devices_in_use, facts_of, held_by, make_limits
from pumice.gguf import GGUFFile
from pumice.graph import Graph
from pumice.machine import usable_memory_bytes
from pumice.model_graphs import chosen_sizes, make_architecture, trace_adapted
from pumice.planning.machine import PlannedGPUs, PlannedMachine
from pumice.registry import Registry
from pumice.tracing import prompts_of

logger = logging.getLogger("pumice")

_GPUS = "gpu"  # name of the backend of planned GPUs


@dataclass(frozen=True)
class DevicePlan:
    """One device of a plan.

    Attributes:
        device: backend and number of the device.
        name: name of the device: ``vulkan0``, ``cpu``, or that of a planned GPU.
        is_gpu: True for a GPU.
        free: bytes free for the model; None if unknown.
        parts: bytes by part, as ``Held`` names them.
        layers: numbers of layers of which the device holds something; the output counts as one more layer.
    """

    device: DeviceName
    name: str
    is_gpu: bool
    free: int | None
    parts: Mapping[str, int]
    layers: Sequence[int]

    @property
    def bytes(self) -> int:
        """Bytes of all parts."""
        return sum(self.parts.values())


@dataclass(frozen=True)
class ModelPlan:
    """Devices and memory of a model, computed without loading its weights.

    Attributes:
        model: path or name of the model.
        architecture: value of ``general.architecture``.
        n_bytes: bytes of the model's tensors.
        n_ctx: context of a sequence in tokens.
        n_cache: tokens that the key/value cache holds, of all sequences together; 0 without a cache.
        n_ctx_max: largest context that needs no further layer in host memory; 0 if none fits.
        n_ctx_train: context that the model was trained for.
        n_layers: layers, with the output as one more.
        n_gpu_layers: layers on GPUs.
        kv_type: type of the key/value cache.
        n_parallel: sequences computed at once.
        devices: devices in use, GPUs first.
        held: bytes by device, layer and part.
        fits: True if no device holds more than is free there.
    """

    model: str
    architecture: str
    n_bytes: int
    n_ctx: int
    n_ctx_max: int
    n_ctx_train: int
    n_layers: int
    n_gpu_layers: int
    kv_type: str
    n_parallel: int
    devices: Sequence[DevicePlan]
    held: Sequence[Held]
    fits: bool
    n_cache: int = 0

    @property
    def placement(self) -> dict[str, Any]:
        """Layers on GPUs, and bytes and layers of each device, ready for ``json.dumps``."""
        devices = [
            {"name": item.name, "is_gpu": item.is_gpu, "bytes": item.bytes, "parts": item.parts, "layers": item.layers}
            for item in self.devices
        ]
        counts = {
            "n_ctx": self.n_ctx,
            "n_cache": self.n_cache,
            "n_layers": self.n_layers,
            "n_gpu_layers": self.n_gpu_layers,
        }
        return {**counts, "fits": self.fits, "devices": devices}

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as objects, lists, texts and numbers, ready for ``json.dumps``."""
        fields = asdict(self)
        names = {device.device: device.name for device in self.devices}
        held = [asdict(item) | {"device": names[item.device]} for item in self.held]
        devices = [asdict(device) | {"bytes": device.bytes} for device in self.devices]
        return fields | {"devices": devices, "held": held}


@dataclass(frozen=True)
class _Subject:
    """A traced model and the backends that it is planned for."""

    graphs: Mapping[str, Graph]
    backends: Backends
    sizes: EngineSizes
    rules: PlacementRules
    host_bytes: int | None

    @property
    def traced(self) -> dict[str, Graph]:
        """All graphs by name, with those for prompts."""
        prompts = {name if name in LATER else f"{name} of prompts": g for name, g in prompts_of(self.graphs).items()}
        return {**prompts, **self.graphs}

    @property
    def later(self) -> list[int]:
        """The numbers of the graphs that are compiled later."""
        return [number for number, name in enumerate(self.traced) if name in LATER]

    @property
    def named(self) -> dict[str, Backend]:
        return dict(self.backends)


def plan_file(
    file: GGUFFile,
    config: Config,
    registry: Registry,
    machine: PlannedMachine | None = None,
    *,
    model: str = "",
) -> ModelPlan:
    """Return the plan of a model's file, of which only the header is read.

    Args:
        file: the model.
        config: options of the context, the cache and the placement.
        registry: registered plugins.
        machine: machine to plan for; None: this one.
        model: name of the model in the plan; by default the file's path.

    Raises:
        PumiceError: ModelError, ConfigError or BackendError.
    """
    machine = machine or PlannedMachine()
    if machine.gpus:
        config = replace(config, override_tensors=[_on_planned(text) for text in config.override_tensors])
    with ExitStack() as stack:
        architecture = make_architecture(file, registry)
        subject = _subject(stack, file, architecture, config, registry, machine)
        limits = make_limits(subject.graphs, subject.sizes)
        placement = find_placement(list(subject.traced.values()), subject.backends, limits, subject.rules)
        uses = devices_in_use(placement.segments, subject.named, limits, subject.later)
        held = held_by(uses, chain.from_iterable(placement.segments), subject.named, limits)
        devices = _devices(held, subject, machine)
        fits = all(device.free is None or device.bytes <= device.free for device in devices)
        return ModelPlan(
            model=model or str(file.path),
            architecture=file.architecture,
            n_bytes=sum(tensor.nbytes for tensor in file.tensors.values()),
            n_ctx=subject.sizes.n_ctx,
            n_ctx_max=_largest_with(subject, placement.n_offloaded, architecture.n_ctx_train, fits),
            n_ctx_train=architecture.n_ctx_train,
            n_layers=max(graph.n_layer for graph in subject.graphs.values()) + 1,
            n_gpu_layers=placement.n_offloaded if any(device.is_gpu for device in devices) else 0,
            kv_type=config.kv_type,
            n_parallel=config.n_parallel,
            devices=devices,
            held=held,
            fits=fits,
            n_cache=limits.n_cache,
        )


def _on_planned(text: str) -> str:
    """Return ``REGEX=DEVICE`` for planned GPUs, which stand for those of any backend: ``Vulkan0`` is ``gpu0``."""
    pattern, _, name = text.rpartition("=")
    device = parse_device(name)
    return text if device is None or device == HOST else f"{pattern}={_GPUS}{device.number}"


def _subject(
    stack: ExitStack,
    file: GGUFFile,
    architecture: Architecture,
    config: Config,
    registry: Registry,
    machine: PlannedMachine,
) -> _Subject:
    """Return the traced model with the sizes and rules that are planned for; ``stack`` closes backends and files."""
    sizes = chosen_sizes(config, file, architecture)
    backends = _backends(stack, registry, config, machine)
    graphs = trace_adapted(stack, file, architecture, sizes.n_ctx, config, registry)
    host = machine.host_bytes if machine.host_bytes is not None else usable_memory_bytes(config.memory_limit)
    return _Subject(graphs, backends, *fit_model(graphs, backends, sizes, config, host), host)


def _backends(stack: ExitStack, registry: Registry, config: Config, machine: PlannedMachine) -> Backends:
    """Return the backends of a machine; planned GPUs take the place of this machine's."""
    if machine.gpus is not None:
        _warn_of_unused(config)
        config = replace(config, backend="auto", devices=["none"], split_mode="auto")
    backends = open_backends(stack, registry, config)
    return [(_GPUS, PlannedGPUs(list(machine.gpus.values()))), *backends] if machine.gpus else backends


def _warn_of_unused(config: Config) -> None:
    """Log a warning for each option that chooses devices of this machine, in a plan for another one."""
    values = {"backend": config.backend, "devices": ",".join(config.devices), "split_mode": config.split_mode}
    for name, value in values.items():
        if not config.is_default(name):
            logger.warning("%s: %s has no effect: the plan is for GPUs of another machine", name, value)


def _largest_with(subject: _Subject, n_gpu_layers: int, n_ctx_train: int, is_fitting: bool) -> int:
    """Return the largest context, up to ``n_ctx_train``, with which as many layers fit the GPUs.

    0 if none fits, which is possible unless the planned context ``is_fitting``.
    """
    rules = replace(subject.rules, n_gpu_layers=n_gpu_layers)
    sizes = replace(subject.sizes, n_ctx=n_ctx_train)

    traced = list(subject.traced.values())

    def fits(limits: Limits) -> bool:
        return has_room(traced, subject.backends, limits, rules, subject.host_bytes, subject.later)

    least = min(BLOCK_SIZE, n_ctx_train)
    if not is_fitting and not fits(make_limits(subject.graphs, replace(sizes, n_ctx=least))):
        return 0
    return largest_context(subject.graphs, sizes, least, fits)


def _devices(held: Sequence[Held], subject: _Subject, machine: PlannedMachine) -> list[DevicePlan]:
    plans = []
    devices = list(dict.fromkeys(item.device for item in held))
    for device in sorted(devices, key=lambda device: not subject.named[device.backend].offload):
        (facts,) = facts_of([item for item in held if item.device == device], subject.named)
        free = subject.named[device.backend].free_memory()[device.number] if facts.is_gpu else subject.host_bytes
        is_planned = device.backend == _GPUS and machine.gpus
        name = list(machine.gpus)[device.number] if is_planned and machine.gpus else facts.name
        plans.append(DevicePlan(device, name, facts.is_gpu, free, facts.parts, facts.layers))
    return plans
