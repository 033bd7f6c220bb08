"""Command buffers on Kompute's sequences."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import BackendError
from pumice_vulkan.device.checks import LOST, check_copy, check_dispatch, check_timestamp
from pumice_vulkan.device.contract import Buffer, CommandBuffer, ComputePipeline, Encoder
from pumice_vulkan.device.kompute.manager import Manager
from pumice_vulkan.device.kompute.memory import KomputeBuffer
from pumice_vulkan.device.kompute.pipeline import KomputePipeline
from pumice_vulkan.shaders import interface

COPY = "copy"  # the shader
COPY = "copy"  # the shader
COPY_THREADGROUPS = 1024


class KomputeCommandBuffer(CommandBuffer):
    """A sequence. ``commit`` blocks if Kompute's bindings do (``Manager.waits``)."""

    def __init__(self, manager: Manager, copying: KomputePipeline, n_timestamps: int) -> None:
        self._manager = manager
        self._copying = copying
        self.n_timestamps = n_timestamps
        self._sequence: Any = None
        self._marks: dict[int, int] = {}  # timestamp -> number of operations before it
        self._pending = False
        manager.ledger.opened(self)

    def encoder(self) -> KomputeEncoder:
        return KomputeEncoder(self._manager, self._copying, self)

    def finish(self, operations: list[Any], marks: dict[int, int]) -> None:
        """Record all operations at once, since Kompute takes a timestamp after each and needs their number first."""
        self._marks = marks
        if operations:
            manager = self._manager.handle
            self._sequence = manager.sequence(0, len(operations)) if self.n_timestamps else manager.sequence()
            for operation in operations:
                self._sequence.record(operation)

    def commit(self) -> None:
        self.wait()
        if self._sequence is not None:
            with self._reporting():
                self._sequence.eval_async()
            self._pending = not self._manager.waits

    def wait(self, spins: bool = True) -> None:
        if self._pending:
            self._pending = False
            with self._reporting():
                self._sequence.eval_await()

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            cause = LOST if "DeviceLost" in str(error) else error
            raise BackendError(f"vulkan: cannot run commands on {self._manager.description.name}: {cause}") from None

    def timestamps(self) -> list[float]:
        if self._sequence is None or not self.n_timestamps:
            return [0.0] * self.n_timestamps
        self.wait()
        ticks = self._sequence.get_timestamps()
        first = ticks[self._marks.get(0, 0)]
        period = self._manager.description.timestamp_period_ns / 1000
        return [(ticks[self._marks.get(index, 0)] - first) * period for index in range(self.n_timestamps)]

    def close(self) -> None:
        if self._manager.ledger.closing(self) and self._sequence is not None:
            self.wait()
            self._sequence.destroy()
            self._sequence = None


class KomputeEncoder(Encoder):
    """Collects operations until the command buffer is finished."""

    def __init__(self, manager: Manager, copying: KomputePipeline, target: KomputeCommandBuffer) -> None:
        self._manager = manager
        self._copying = copying
        self._target = target
        self._pipeline: KomputePipeline | None = None
        self._buffers: dict[int, KomputeBuffer] = {}
        self._push = b""
        self._operations: list[Any] = []
        self._marks: dict[int, int] = {}
        self._barrier_wanted = False

    def set_pipeline(self, pipeline: ComputePipeline) -> None:
        assert isinstance(pipeline, KomputePipeline)
        self._pipeline = pipeline

    def set_buffer(self, index: int, buffer: Buffer) -> None:
        assert isinstance(buffer, KomputeBuffer)
        self._buffers[index] = buffer

    def set_bytes(self, data: bytes | NDArray[np.uint32]) -> None:
        self._push = bytes(data)

    def dispatch_threadgroups(self, x: int, y: int = 1, z: int = 1) -> None:
        if self._pipeline is None:
            raise ValueError("no pipeline is set")
        grid = (x, y, z)
        buffers = check_dispatch(self._manager.description, self._pipeline, self._buffers, len(self._push), grid)
        self._add(self._pipeline.dispatch(buffers, grid, self._push))

    def copy_buffer(self, source: Buffer, source_offset: int, target: Buffer, target_offset: int, n_bytes: int) -> None:
        """Copy by a shader, since storage tensors do not support transfers."""
        assert isinstance(source, KomputeBuffer)
        assert isinstance(target, KomputeBuffer)
        check_copy(source, source_offset, target, target_offset, n_bytes)
        grid = (min(COPY_THREADGROUPS, -(-n_bytes // 1024)), 1, 1)
        words = {"n_words": n_bytes // 4, "source_offset": source_offset // 4, "target_offset": target_offset // 4}
        push = interface(COPY).pack(**words)
        self._add(self._copying.dispatch((source, target), grid, push))

    def barrier(self) -> None:
        self._barrier_wanted = True

    def timestamp(self, index: int) -> None:
        check_timestamp(index, self._target.n_timestamps)
        self._marks[index] = len(self._operations)

    def end(self) -> None:
        self._target.finish(self._operations, self._marks)

    def _add(self, operation: Any) -> None:
        if self._barrier_wanted and self._operations:
            self._operations.extend(self._manager.ordering)
        self._barrier_wanted = False
        self._operations.append(operation)
