"""Common behaviour of the devices of both drivers: checks before Vulkan calls, accounting, closing of objects."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from pumice_vulkan.device.checks import (
    check_bindings,
    check_buffer_size,
    check_memory,
    check_push_bytes,
    check_resources,
)
from pumice_vulkan.device.contract import Buffer, ComputePipeline, Device, DeviceDescription
from pumice_vulkan.device.ledger import Ledger
from pumice_vulkan.device.resources import resources
from pumice_vulkan.device.spirv import check_shader


class CheckedDevice(Device):
    """A device that validates arguments before it calls its driver."""

    def __init__(self, description: DeviceDescription, ledger: Ledger) -> None:
        self.description = description
        self.ledger = ledger
        self._closed = False

    @property
    def n_allocations(self) -> int:
        return self.ledger.n_allocations

    @property
    def allocated_bytes(self) -> int:
        return self.ledger.allocated_bytes

    @property
    def own_bytes(self) -> int:
        return self.allocated_bytes - (self.ledger.host_bytes if self._is_discrete else 0)

    @property
    def _is_discrete(self) -> bool:
        return self.description.type == "discrete"

    def new_buffer(self, n_bytes: int, *, host: bool = False) -> Buffer:
        check_buffer_size(self.description, n_bytes)
        if not (host and self._is_discrete):
            check_memory(self.description, self.own_bytes, n_bytes)
        return self._allocate(n_bytes, host)

    def new_pipeline(
        self,
        spirv: bytes,
        n_buffers: int,
        push_bytes: int,
        constants: Sequence[int] = (),
        *,
        full_subgroups: bool = False,
    ) -> ComputePipeline:
        check_shader(spirv, self.features, self.description.api_version)
        check_bindings(self.description, n_buffers)
        check_push_bytes(self.description, push_bytes)
        if self.description.limited:  # otherwise the driver checks
            check_resources(self.description, resources(spirv, constants))
        return self._compile(spirv, n_buffers, push_bytes, constants, full_subgroups)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._wait_idle()
            for item in reversed(self.ledger.items()):
                item.close()
            self._destroy()

    @abstractmethod
    def _allocate(self, n_bytes: int, host: bool) -> Buffer: ...

    @abstractmethod
    def _compile(
        self, spirv: bytes, n_buffers: int, push_bytes: int, constants: Sequence[int], full_subgroups: bool
    ) -> ComputePipeline: ...

    @abstractmethod
    def _wait_idle(self) -> None: ...

    @abstractmethod
    def _destroy(self) -> None:
        """Free the device itself."""
