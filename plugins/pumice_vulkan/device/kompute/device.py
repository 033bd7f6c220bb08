"""An open Kompute device."""

from __future__ import annotations

from collections.abc import Sequence

from pumice_vulkan.device.checks import check_free_memory, choose
from pumice_vulkan.device.contract import DeviceDescription
from pumice_vulkan.device.device import Device
from pumice_vulkan.device.kompute.commands import COPY, KomputeCommandBuffer
from pumice_vulkan.device.kompute.manager import Manager, describe
from pumice_vulkan.device.kompute.memory import KomputeBuffer
from pumice_vulkan.device.kompute.pipeline import KomputePipeline
from pumice_vulkan.device.native.instance import instance
from pumice_vulkan.shaders import interface, shader


class KomputeDevice(Device):
    """A ``kp.Manager``, and a Vulkan instance for information that Kompute lacks: memory, features.

    Differences from ``native``:

    - ``commit`` costs about half a millisecond, since Kompute creates a fence each time; with the published kp it
    blocks.
    - Every dispatch records barriers for its buffers; on some drivers, such as NVIDIA's, independent dispatches do not
      overlap.
    - ``barrier`` needs a copy of one word between two dispatches, which orders compute, transfer, compute. On NVIDIA's
      driver Kompute's own barriers suffice, and the copy is omitted.
    - A pipeline is compiled for each combination of buffers and grid, when it is first recorded.
    - Device features are not enabled, although the specification demands it: ``features`` are the hardware's, and a
    kernel
      that needs one should be tested on a small input first.
    - Host buffers may be in uncached memory: writes are fast, reads slow.
    """

    def __init__(self, index: int) -> None:
        self._physical = choose(instance().devices, index)
        self._manager = Manager(self._physical, index)
        self._copying = KomputePipeline(self._manager, shader(COPY), 2, interface(COPY).n_bytes, ())
        super().__init__(self._manager.description, self._manager.ledger)
        self.runs_behind = not self._manager.waits

    @property
    def free_memory_bytes(self) -> int:
        return self._physical.free_memory_bytes(self.own_bytes)

    def new_command_buffer(self, timestamps: int = 0) -> KomputeCommandBuffer:
        return KomputeCommandBuffer(self._manager, self._copying, timestamps)

    def _allocate(self, n_bytes: int, host: bool) -> KomputeBuffer:
        # Kompute ignores failed allocations and crashes later.
        if not (host and self.description.type == "discrete"):
            check_free_memory(self.description, self.free_memory_bytes, self.allocated_bytes, n_bytes)
        return KomputeBuffer(self._manager, n_bytes, host)

    def _compile(
        self, spirv: bytes, n_buffers: int, push_bytes: int, constants: Sequence[int], full_subgroups: bool
    ) -> KomputePipeline:
        return KomputePipeline(self._manager, spirv, n_buffers, push_bytes, constants)

    def _wait_idle(self) -> None:
        return  # command buffers wait when closed, and they are closed before older objects

    def _destroy(self) -> None:
        self._manager.close()


def open_device(index: int) -> KomputeDevice:
    return KomputeDevice(index)


def list_devices() -> list[DeviceDescription]:
    return [describe(device, index) for index, device in enumerate(instance().devices)]
