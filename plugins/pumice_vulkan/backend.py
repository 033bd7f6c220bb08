"""The backend: which devices it may use."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pumice.plugin import (
    Access,
    Backend,
    BackendError,
    DeviceInfo,
    KVState,
    Limits,
    MemoryPlan,
    Node,
    Program,
    Segment,
    State,
    Weight,
)
from pumice_vulkan.device import DeviceDescription, find_device, list_devices, open_device
from pumice_vulkan.fuse import fuse
from pumice_vulkan.kv_cache import CacheLayout
from pumice_vulkan.step import has_known_sizes

if TYPE_CHECKING:
    from pumice_vulkan.device import Device
    from pumice_vulkan.program import Shared

RESERVE = 256 * 2**20  # bytes of a device that are left for activations, command buffers and others

SOFTWARE = "PUMICE_VULKAN_SOFTWARE"
"""Set to 1, it allows devices that the processor plays, such as Mesa's lavapipe: for tests."""


@dataclass
class VulkanOptions:
    """Configuration section ``vulkan``."""

    driver: str = "auto"  # "kompute", "native", or "auto": the first of them that is installed
    device: int | str = 0  # as `pumice devices` counts them, or its UUID, or the beginning of that
    activations: str = "auto"  # in products with few rows: "int8", "float", or "auto": int8 where that is fast
    devices: list[int | str] = field(default_factory=list)  # several: layers are split over them; overrides `device`


class VulkanBackend(Backend):
    """Runs on a GPU with a Vulkan driver.

    A software device is slower than the CPU backend, so one alone does not make the backend available, neither for
    ``auto`` nor by name, unless the environment has ``PUMICE_VULKAN_SOFTWARE=1``.
    """

    offload = True
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

    def supports(self, node: Node, limits: Limits) -> bool:
        from pumice_vulkan.lower import RULES

        rule = RULES.get(node.op)
        return rule is not None and has_known_sizes(node) and rule.claims(node, limits) and self._has_room(node)

    def free_memory(self) -> list[int | None]:
        return [max(shared.device.free_memory_bytes - RESERVE, 0) for shared in self._open()]

    def footprint(self, held: Weight | State, limits: Limits) -> int:
        from pumice_vulkan.memory import ALIGNMENT
        from pumice_vulkan.packing import packed_bytes

        if isinstance(held, Weight):
            return packed_bytes(held) + 4 * ALIGNMENT
        if isinstance(held, KVState):
            return 4 * CacheLayout.of(held, limits).words
        return super().footprint(held, limits)

    def rewrite(self, segment: Segment) -> Segment:
        return fuse(segment)

    def compile(self, segment: Segment, plan: MemoryPlan, limits: Limits) -> Program:
        from pumice_vulkan.program import DeviceProgram

        return DeviceProgram(self._open()[segment.device], segment, plan, limits)

    def close(self) -> None:
        for shared in self._opened:
            shared.cache.close()
            shared.device.close()
        self._opened = []

    def _has_room(self, node: Node) -> bool:
        """Whether each weight fits into a buffer; a kernel has one for it."""
        from pumice_vulkan.packing import packed_bytes

        sizes = [packed_bytes(tensor) for tensor in node.operands() if isinstance(tensor, Weight)]
        return not sizes or max(sizes) <= min(shared.device.max_buffer_bytes for shared in self._open())

    def _open(self) -> list[Shared]:
        if not self._opened:
            for name in self.options.devices or [self.options.device]:
                self._opened.append(self._open_one(name))
        return self._opened

    def _open_one(self, name: int | str) -> Shared:
        from pumice_vulkan.kernels import Kernels
        from pumice_vulkan.memory import Arena, Weights
        from pumice_vulkan.probe import cooperative_matrices_work
        from pumice_vulkan.program import Shared

        device = open_device(self.options.driver, find_device(self.options.driver, name))
        try:
            int8 = _use_int8(self.options.activations, device)
            cooperative = cooperative_matrices_work(device)
        except BaseException:
            device.close()
            raise
        return Shared(device, Kernels(device), Weights(device), Arena(device), int8, cooperative)


def _use_int8(activations: str, device: Device) -> bool:
    """Raises BackendError for a wrong option."""
    if activations not in ("auto", "int8", "float"):
        raise BackendError(f"vulkan: no activations {activations!r}; choose auto, int8 or float")
    if activations == "int8" and "integer_dot_product" not in device.features:
        raise BackendError(f"vulkan: {device.name} has no integer dot product; set activations to auto or float")
    return activations == "int8" or (activations == "auto" and "integer_dot_product_fast" in device.features)


@functools.cache
def _unavailable(software: bool) -> str | None:
    """Asked several times for one model, and starting Vulkan takes a while on some machines: the answer is kept."""
    try:
        devices = list_devices()
    except BackendError as error:
        return str(error)
    if not devices:
        return "no Vulkan device was found; install the graphics driver of your GPU"
    if not software and all(device.software for device in devices):
        return f"only a software Vulkan device is present ({devices[0].name}); to use it all the same, set {SOFTWARE}=1"
    return None


FASTER = "`auto` takes kompute where it is installed; vulkan.driver=native generates 1.12 times as fast on an H200"
"""docs/performance.md: 64 sequences of llama-1b Q4_0, 24,692 tokens/s beside 22,054."""


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
    if device.driver == "kompute":
        details["note"] = FASTER
    return DeviceInfo(device.name, "cpu" if device.software else "gpu", device.memory_bytes, details)
