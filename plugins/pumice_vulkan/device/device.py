"""An open device: what both drivers offer, behind checks that make a mistake an error and not a crash."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from pumice_vulkan.device.checks import (
    check_bindings,
    check_buffer_size,
    check_memory,
    check_push_bytes,
    check_resources,
)
from pumice_vulkan.device.contract import Buffer, CommandBuffer, ComputePipeline, DeviceDescription
from pumice_vulkan.device.ledger import Ledger
from pumice_vulkan.device.resources import resources
from pumice_vulkan.device.spirv import check_shader


class Device(ABC):
    """An open device with one queue. Closing it closes its objects."""

    runs_behind: bool = True  # a commit returns before its commands end
    compiles_beside: bool = False  # threads other than those that commit may create pipelines and command buffers

    def __init__(self, description: DeviceDescription, ledger: Ledger) -> None:
        self.description = description
        self.ledger = ledger
        self._closed = False

    def limit(self, description: DeviceDescription) -> None:
        """Restrict the device to a description that offers less, before anything is created."""
        self.description = description

    @property
    def name(self) -> str:
        return self.description.name

    @property
    def subgroup_size(self) -> int:
        return self.description.subgroup_size

    @property
    def threadgroup_memory_bytes(self) -> int:
        return self.description.threadgroup_memory_bytes

    @property
    def features(self) -> frozenset[str]:
        return self.description.features

    @property
    def n_allocations(self) -> int:
        """Number of open buffers."""
        return self.ledger.n_allocations

    @property
    def allocated_bytes(self) -> int:
        """Total bytes of open buffers."""
        return self.ledger.allocated_bytes

    @property
    def own_bytes(self) -> int:
        """Total bytes of open buffers in the device's own memory: a discrete GPU has none of the host's."""
        return self.allocated_bytes - (self.ledger.host_bytes if self._is_discrete else 0)

    @property
    def _is_discrete(self) -> bool:
        return self.description.type == "discrete"

    @property
    @abstractmethod
    def free_memory_bytes(self) -> int:
        """Return the device memory that this process can still allocate, as reported by the driver."""

    def new_buffer(self, n_bytes: int, *, host: bool = False) -> Buffer:
        """Allocate device memory, or with ``host`` memory that the host can access. Its bytes are undefined.

        Raises BackendError if it is larger than ``DeviceDescription.max_buffer_bytes`` or memory runs out.
        """
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
        """Compile a shader: entry point ``main``, storage buffers at set 0, bindings 0 to ``n_buffers - 1``.

        Args:
            spirv: SPIR-V code.
            n_buffers: number of storage buffers.
            push_bytes: bytes of push constants.
            constants: specialization constants 0, 1, ... as uint32 words; may include the size of a threadgroup.
            full_subgroups: require full subgroups if the device can guarantee it; the threadgroup's x size must then be
                a multiple of the subgroup size.

        Raises:
            BackendError: if the code is not SPIR-V, needs unsupported features, or does not compile.
        """
        check_shader(spirv, self.features, self.description.api_version)
        check_bindings(self.description, n_buffers)
        check_push_bytes(self.description, push_bytes)
        if self.description.limited:  # otherwise the driver checks
            check_resources(self.description, resources(spirv, constants))
        return self._compile(spirv, n_buffers, push_bytes, constants, full_subgroups)

    @property
    def knows_pipelines(self) -> bool:
        """False if no earlier process kept pipelines of this device, so that all of them are compiled in this one."""
        return True

    def keep_pipelines(self) -> None:  # noqa: B027
        """Store compiled pipelines for later processes, if the driver supports that."""

    @abstractmethod
    def new_command_buffer(self, timestamps: int = 0) -> CommandBuffer:
        """Return an empty command buffer with room for ``timestamps`` timestamps."""

    def close(self) -> None:
        """Wait until the device is idle, then free it and all of its objects."""
        if not self._closed:
            self._closed = True
            self._wait_idle()
            for item in reversed(self.ledger.items()):
                item.close()
            self._destroy()

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

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
