"""A device without a GPU: it offers what a description says, checks what the device layer checks, and computes nothing.

With it the kernels that the backend chooses for a device are known without the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pumice_vulkan.device import Buffer, CommandBuffer, ComputePipeline, DeviceDescription, Encoder
from pumice_vulkan.device.checks import check_dispatch
from pumice_vulkan.device.device import Device
from pumice_vulkan.device.ledger import Ledger


@dataclass(eq=False)
class PaperBuffer(Buffer):
    n_bytes: int
    host: bool

    @cached_property
    def _bytes(self) -> NDArray[np.uint8]:
        return np.zeros(self.n_bytes, np.uint8)

    @property
    def contents(self) -> NDArray[np.uint8]:
        if not self.host:
            raise ValueError("the host can only access buffers created with host=True")
        return self._bytes

    def close(self) -> None:
        """Do nothing: there is no memory."""


@dataclass(eq=False)
class PaperPipeline(ComputePipeline):
    n_buffers: int
    push_bytes: int
    spirv: bytes = b""
    constants: tuple[int, ...] = ()
    full_subgroups: bool = False

    def close(self) -> None:
        """Do nothing: there is no pipeline."""


class PaperEncoder(Encoder):
    """Checks dispatches against the description."""

    def __init__(self, device: DeviceDescription) -> None:
        self._device = device
        self._pipeline = PaperPipeline(0, 0)
        self._buffers: dict[int, Buffer] = {}
        self._push = 0

    def set_pipeline(self, pipeline: ComputePipeline) -> None:
        self._pipeline = PaperPipeline(pipeline.n_buffers, pipeline.push_bytes)

    def set_buffer(self, index: int, buffer: Buffer) -> None:
        self._buffers[index] = buffer

    def set_bytes(self, data: bytes | NDArray[np.uint32]) -> None:
        self._push = len(data) if isinstance(data, bytes) else data.nbytes

    def dispatch_threadgroups(self, x: int, y: int = 1, z: int = 1) -> None:
        check_dispatch(self._device, self._pipeline, self._buffers, self._push, (x, y, z))

    def copy_buffer(self, source: Buffer, source_offset: int, target: Buffer, target_offset: int, n_bytes: int) -> None:
        """Do nothing: there is no data."""

    def barrier(self) -> None:
        """Do nothing: no commands overlap."""

    def timestamp(self, index: int) -> None:
        """Do nothing: no time passes."""

    def end(self) -> None:
        """Do nothing: no commands are kept."""


class PaperCommandBuffer(CommandBuffer):
    def __init__(self, device: DeviceDescription) -> None:
        self._device = device

    def encoder(self) -> Encoder:
        return PaperEncoder(self._device)

    def commit(self) -> None:
        """Do nothing: no commands run."""

    def wait(self, spins: bool = True) -> None:
        """Do nothing: no commands run."""

    def timestamps(self) -> list[float]:
        return []

    def close(self) -> None:
        """Do nothing: no commands are kept."""


class PaperDevice(Device):
    """A device of a description, and the pipelines made on it."""

    def __init__(self, description: DeviceDescription) -> None:
        super().__init__(description, Ledger())
        self.pipelines: list[PaperPipeline] = []

    @property
    def free_memory_bytes(self) -> int:
        return self.description.memory_bytes - self.allocated_bytes

    def new_command_buffer(self, timestamps: int = 0) -> CommandBuffer:
        return PaperCommandBuffer(self.description)

    def _allocate(self, n_bytes: int, host: bool) -> Buffer:
        return PaperBuffer(n_bytes, host)

    def _compile(
        self, spirv: bytes, n_buffers: int, push_bytes: int, constants: Sequence[int], full_subgroups: bool
    ) -> ComputePipeline:
        pipeline = PaperPipeline(n_buffers, push_bytes, spirv, tuple(map(int, constants)), full_subgroups)
        self.pipelines.append(pipeline)
        return pipeline

    def _wait_idle(self) -> None:
        """Do nothing: no commands run."""

    def _destroy(self) -> None:
        """Do nothing: there is no device."""
