"""The Vulkan backend: device selection, options, and support checks."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pumice.plugin import BackendError, PumiceError, Weight
from pumice.plugin.unstable import (
    Access,
    Backend,
    DeviceInfo,
    Fact,
    KVState,
    Limits,
    MemoryPlan,
    Node,
    Program,
    Segment,
    State,
    parse_size,
)
from pumice_vulkan.device import DeviceDescription, find_device, list_devices, open_device
from pumice_vulkan.device.contract import version
from pumice_vulkan.fuse import fuse
from pumice_vulkan.kv_cache import CacheLayout
from pumice_vulkan.step import SCRATCH_BYTES, has_known_sizes

if TYPE_CHECKING:
    from pumice_vulkan.device import Device
    from pumice_vulkan.shared import Shared

T = TypeVar("T")

RESERVE = 256 * 2**20  # bytes of device memory reserved for scratch memory, command buffers and other uses

NEEDED = frozenset({"subgroup_arithmetic"})  # features that products with a vector and norms use
NEEDED_INVOCATIONS = 256  # of a workgroup, by kernels of every model

INT8_LANES = 8  # adjacent invocations of a subgroup that quantize a block, as in shaders/quantize.glsl

SOFTWARE = "PUMICE_VULKAN_SOFTWARE"
"""Environment variable that, set to 1, allows software devices such as Mesa's lavapipe, for tests."""


Switch = Literal["auto", "always", "never"]
Rows = Literal["auto", 1, 2, 3, 4, 5, 6, 7, 8]  # to ``MOST_ROWS`` of persistent/path.py


def _check_profile(name: str) -> None:
    """Raise ValueError for the name of an unknown profile; a report is read for a device."""
    from pumice_vulkan.profiles import PROFILES

    if not name or name in PROFILES or (name.endswith(".json") and os.path.isfile(name)):
        return
    file = "an existing file of `pumice doctor --report`"
    raise ValueError(f"{file if name.endswith('.json') else f'a profile of docs/gpu_profiles.md or {file}'}")


def _check_memory(size: str) -> None:
    """Raise ValueError unless a text is a size of memory, or empty."""
    try:
        if size:
            parse_size(size)
    except PumiceError:
        raise ValueError("a size of memory, such as 12GiB or 512MiB") from None


ProfileName = Annotated[str, _check_profile]
MemorySize = Annotated[str, _check_memory]


@dataclass
class VulkanOptions:
    """Configuration section ``vulkan``."""

    driver: Literal["auto", "native", "kompute"] = "auto"  # "auto": native
    device: int | str = 0  # number from `pumice devices`, UUID, or prefix of the UUID
    activations: Literal["auto", "int8", "float", "half"] = "auto"  # with few rows, or without matrix units
    # "half": float, and float16 products of many rows without matrix units; "auto": int8 if fast, else half on a GPU
    # that computes in float16
    prepare: Switch = "auto"  # compile sizes of steps ahead: "always", "never", or "auto" (on GPUs)
    persistent: Switch = "auto"  # tokens of one sequence in one dispatch: "always" (where possible), "never", or "auto"
    rows_in_one_dispatch: Rows = "auto"  # most tokens of a step in one dispatch, where one token is
    batch_invariant: bool = False  # bit-identical results for 1 to 16 tokens of a step
    devices: list[int | str] = field(default_factory=list)  # devices to split layers over; overrides `device`
    profile: ProfileName = ""  # do with what a device of `pumice_vulkan/profiles.py` has, for tests
    memory: MemorySize = ""  # most memory of each device to use for a model, such as 12GiB; empty: all that is free


class VulkanBackend(Backend):
    """The backend for GPUs with a Vulkan driver.

    A software device is slower than the CPU backend, so it does not make the backend available, neither for ``auto``
    nor by name, unless ``PUMICE_VULKAN_SOFTWARE=1`` is set.
    """

    offload = True
    reads_in_place = True
    scratch_bytes = SCRATCH_BYTES
    shares_arenas = True
    Options = VulkanOptions

    @classmethod
    def unavailable(cls) -> str | None:
        return _unavailable(os.environ.get(SOFTWARE) == "1")

    @classmethod
    def access(cls) -> Access:
        from pumice_vulkan.drivers import driver_access

        return driver_access()

    @classmethod
    def devices(cls) -> list[DeviceInfo]:
        return [_info(device) for device in list_devices()]

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self._opened: list[Shared] = []
        self._used: list[str] = []  # kernels, with their constants

    def supports(self, node: Node, limits: Limits) -> bool:
        from pumice_vulkan.lower import RULES

        rule = RULES.get(node.op)
        if rule is None or not has_known_sizes(node, limits) or not rule.claims(node, limits):
            return False
        return self._has_room(node) and not self._avoids(node)

    def free_memory(self) -> list[int | None]:
        most = parse_size(self.options.memory, "vulkan.memory") if self.options.memory else None
        return [max(_free_bytes(shared.device, most) - RESERVE, 0) for shared in self._open()]

    def shares_host_memory(self) -> bool:
        return any(shared.device.description.type in ("integrated", "cpu") for shared in self._open())

    def facts(self) -> Mapping[str, Fact]:
        from pumice_vulkan.quirks import QUIRKS

        shared = self._open()[0]
        device, shape = shared.device.description, shared.cooperative
        return {
            "driver": f"{device.driver} on {device.vulkan_driver}",
            "driver_id": device.driver_id,
            "driver_version": ".".join(map(str, device.driver_version)),
            "vulkan": device.api_version,
            "vendor": device.vendor,
            "type": device.type,
            "memory_bytes": device.memory_bytes,
            "subgroup_size": device.subgroup_size,
            "subgroup_sizes": [str(n) for n in device.subgroup_sizes],
            "max_buffers": device.max_buffers,
            "most_dispatches": device.most_dispatches,
            "most_work": device.most_work,
            "max_buffer_bytes": device.max_buffer_bytes,
            "max_threadgroups": [str(n) for n in device.max_threadgroups],
            "max_threads_per_threadgroup": device.max_threads_per_threadgroup,
            "threadgroup_memory_bytes": device.threadgroup_memory_bytes,
            "push_constant_bytes": device.push_constant_bytes,
            "timestamp_period_ns": device.timestamp_period_ns,
            "features": sorted(device.features),
            "cooperative_matrices": [
                f"{shape.m}x{shape.n}x{shape.k} {shape.a} to {shape.c}" for shape in device.cooperative_matrices
            ],
            "avoided": sorted(device.avoided),
            "quirks": [quirk.why for quirk in QUIRKS if quirk.applies(device)],
            "int8_activations": shared.int8,
            "half_products": shared.half,
            "matrix_shape": f"{shape.m}x{shape.n}x{shape.k}" if shape else "",
            "prepares": shared.prepares,
            "persistent": shared.persistent,
        }

    def footprint(self, held: Weight | State, limits: Limits) -> int:
        from pumice_vulkan.memory import ALIGNMENT
        from pumice_vulkan.packing import packed_bytes

        if isinstance(held, Weight):
            return 0 if limits.is_in_place(held.name) else packed_bytes(held) + 4 * ALIGNMENT
        if isinstance(held, KVState):
            return 4 * CacheLayout.of(held, limits).words
        return super().footprint(held, limits)

    def host_footprint(self, weight: Weight, limits: Limits) -> int:
        from pumice_vulkan.memory import ALIGNMENT
        from pumice_vulkan.packing import packed_bytes

        return packed_bytes(weight) + 4 * ALIGNMENT if limits.is_in_place(weight.name) else 0

    def rewrite(self, segment: Segment) -> Segment:
        return fuse(segment)

    def compile(self, segment: Segment, plan: MemoryPlan, limits: Limits) -> Program:
        from pumice_vulkan.program import DeviceProgram

        return DeviceProgram(self._open()[segment.device], segment, plan, limits)

    def kernels(self) -> list[str]:
        return list(dict.fromkeys([*self._used, *(name for shared in self._opened for name in shared.kernels.names())]))

    def close(self) -> None:
        self._used = self.kernels()
        for shared in self._opened:
            shared.close()
        self._opened = []

    def _has_room(self, node: Node) -> bool:
        """Return True if each weight fits into a single buffer, as kernels require."""
        from pumice_vulkan.packing import packed_bytes

        sizes = [packed_bytes(tensor) for tensor in node.operands() if isinstance(tensor, Weight)]
        return not sizes or max(sizes) <= min(shared.device.description.max_buffer_bytes for shared in self._open())

    def _avoids(self, node: Node) -> bool:
        """Return True if a device has a quirk that makes the node's kernel wrong."""
        from pumice_vulkan.quirks import SIGMOID_ROUTE

        if node.op not in ("expert_ids", "expert_weights") or node.attrs["gate"] != "sigmoid":
            return False
        return any(SIGMOID_ROUTE in shared.device.description.avoided for shared in self._open())

    def _open(self) -> list[Shared]:
        if not self._opened:
            for name in self.options.devices or [self.options.device]:
                self._opened.append(self._open_one(name))
        return self._opened

    def _open_one(self, name: int | str) -> Shared:
        driver = self.options.driver
        opened = _beside(lambda: open_device(driver, find_device(driver, name)))
        from pumice_vulkan.kernels import Kernels
        from pumice_vulkan.memory import Arena, Scratch, Weights
        from pumice_vulkan.persistent import is_wanted
        from pumice_vulkan.probe import lanes_are_known, sums_by_rows, working_shape
        from pumice_vulkan.profiles import find_profile, narrowed
        from pumice_vulkan.quirks import without_quirks
        from pumice_vulkan.shared import Shared

        device = opened()
        try:
            profile = find_profile(self.options.profile) if self.options.profile else None
            offered = narrowed(device.description, profile) if profile else without_quirks(device.description)
            if problem := _unusable(profile.described() if profile else device.description):
                raise BackendError(f"vulkan: {problem}; use another device or the backend cpu")
            device.limit(offered)
            int8 = _use_int8(self.options.activations, device)
            prepares = _prepares(self.options.prepare, device)
            invariant = self.options.batch_invariant
            persistent = is_wanted(self.options.persistent, device) and _has_persistent(device.description)
            persistent = persistent and not invariant
            most_rows = self.options.rows_in_one_dispatch
            cooperative = working_shape(device)
            lanes = bool(cooperative) and lanes_are_known(device)
            half = _use_half(self.options.activations, device, suits=not (int8 or cooperative or invariant))
        except BaseException:
            device.close()
            raise
        memories = Weights(device), Arena(device), Scratch(device, SCRATCH_BYTES), Scratch(device)
        return Shared(
            *(device, Kernels(device), *memories, int8, cooperative, prepares, persistent),
            most_rows=None if most_rows == "auto" else most_rows,
            lanes=lanes,
            sums_by_rows=sums_by_rows(device) if lanes else None,
            invariant=invariant,
            half=half,
        )


def _beside(function: Callable[[], T]) -> Callable[[], T]:
    """Start a function in a thread, and return what waits for its result: drivers open devices while modules load."""
    result: Future[T] = Future()

    def run() -> None:
        try:
            result.set_result(function())
        except BaseException as error:
            result.set_exception(error)

    try:
        threading.Thread(target=run, name="pumice-vulkan-opener").start()
    except RuntimeError:  # no more threads
        run()
    return result.result


def _free_bytes(device: Device, most: int | None) -> int:
    """Return the free memory of a device, of which a model may use at most ``most`` bytes."""
    free = device.free_memory_bytes
    return free if most is None else min(free, max(most - device.own_bytes, 0))


def _use_int8(activations: str, device: Device) -> bool:
    """Return True if activations become int8. Raises BackendError if the device cannot."""
    if activations == "int8" and "integer_dot_product" not in device.features:
        raise BackendError(f"vulkan: {device.name} has no integer dot product; set activations to auto or float")
    is_wide = device.subgroup_size >= INT8_LANES
    if activations == "int8" and not is_wide:
        raise BackendError(
            f"vulkan: int8 activations need subgroups of {INT8_LANES} invocations, {device.name} has "
            f"{device.subgroup_size}; set activations to auto or float"
        )
    is_fast = is_wide and "integer_dot_product_fast" in device.features
    return activations == "int8" or (activations == "auto" and is_fast)


def _use_half(activations: str, device: Device, suits: bool) -> bool:
    """Return True if products multiply in float16 without matrix units, "auto" if that ``suits`` and this is a GPU.

    Raises BackendError if they are to, and cannot.
    """
    from pumice_vulkan.probe import halves_are_right

    if activations == "auto":
        is_gpu = suits and not device.description.software
        return is_gpu and "float16" in device.features and halves_are_right(device)
    if activations != "half":
        return False
    if "float16" not in device.features:
        raise BackendError(f"vulkan: {device.name} does not compute in float16; set activations to auto or float")
    if not halves_are_right(device):
        raise BackendError(
            f"vulkan: {device.name} computes products in float16 less exactly than IEEE 754 has it; "
            "set activations to auto or float"
        )
    return True


def _has_persistent(device: DeviceDescription) -> bool:
    """Return True if the kernel of a whole token runs: it is of Vulkan 1.3, and 8 invocations quantize a block."""
    return device.subgroup_size >= INT8_LANES and version(device.api_version) >= (1, 3)


def _prepares(prepare: str, device: Device) -> bool:
    """Return True if a thread prepares sizes of steps."""
    enabled = prepare == "always" or (prepare == "auto" and not device.description.software)
    return enabled and device.compiles_beside


@functools.cache
def _unavailable(software: bool) -> str | None:
    """Return why the backend is unavailable, or None. Cached, since starting Vulkan takes time on some machines."""
    try:
        devices = list_devices()
    except BackendError as error:
        return str(error)
    if not devices:
        return "no Vulkan device found; install the graphics driver of your GPU"
    if problem := all(map(_unusable, devices)) and _unusable(devices[0]):
        return problem
    if not software and all(device.software for device in devices):
        return f"only a software Vulkan device is present ({devices[0].name}); set {SOFTWARE}=1 to use it anyway"
    return None


def _unusable(device: DeviceDescription) -> str | None:
    """Return why a device can compute no model, or None."""
    from pumice_vulkan.quirks import QUIRKS, without_quirks

    if (most := device.max_threads_per_threadgroup) < NEEDED_INVOCATIONS:
        return f"{device.name} cannot be used: workgroups have {most} of {NEEDED_INVOCATIONS} invocations needed"
    missing = NEEDED - without_quirks(device).features
    if not missing:
        return None
    quirks = [quirk.why for quirk in QUIRKS if quirk.applies(device) and quirk.without & missing]
    why = quirks[0] if quirks else f"its driver does not offer {', '.join(sorted(missing))}"
    return f"{device.name} cannot be used: {why}"


def _info(device: DeviceDescription) -> DeviceInfo:
    matrices = sorted({f"{shape.m}x{shape.n}x{shape.k} {shape.a}" for shape in device.cooperative_matrices})
    details = {
        "device": str(device.index),
        "uuid": device.uuid,
        "type": device.type,
        "driver": f"{device.driver} on {device.vulkan_driver}",
        "vulkan": device.api_version,
        "subgroup size": str(device.subgroup_size),
        "cooperative matrices": "; ".join(matrices) or "none",
    }
    return DeviceInfo(device.name, "cpu" if device.software else "gpu", device.memory_bytes, details)
