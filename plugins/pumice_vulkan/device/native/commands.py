"""Command buffers: recorded through plain C calls, and committed with one call on a prepared structure."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Mapping
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from pumice_vulkan.device.checks import check_copy, check_dispatch, check_timestamp
from pumice_vulkan.device.contract import Buffer, CommandBuffer, ComputePipeline, Encoder, Launch
from pumice_vulkan.device.native.api import check, created, lib
from pumice_vulkan.device.native.binding import (
    VK_ACCESS_HOST_READ_BIT,
    VK_ACCESS_HOST_WRITE_BIT,
    VK_ACCESS_SHADER_READ_BIT,
    VK_ACCESS_SHADER_WRITE_BIT,
    VK_ACCESS_TRANSFER_READ_BIT,
    VK_ACCESS_TRANSFER_WRITE_BIT,
    VK_NOT_READY,
    VK_PIPELINE_BIND_POINT_COMPUTE,
    VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT,
    VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
    VK_PIPELINE_STAGE_HOST_BIT,
    VK_PIPELINE_STAGE_TRANSFER_BIT,
    VK_QUERY_RESULT_64_BIT,
    VK_QUERY_TYPE_TIMESTAMP,
    VK_SHADER_STAGE_COMPUTE_BIT,
    VkBufferCopy,
    VkCommandBufferBeginInfo,
    VkMemoryBarrier,
    VkQueryPoolCreateInfo,
    VkSubmitInfo,
)
from pumice_vulkan.device.native.descriptors import Descriptors, Handles
from pumice_vulkan.device.native.logical import LogicalDevice
from pumice_vulkan.device.native.memory import NativeBuffer
from pumice_vulkan.device.native.pipeline import NativePipeline

COMPUTE, TRANSFER = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_PIPELINE_STAGE_TRANSFER_BIT
HOST = VK_PIPELINE_STAGE_HOST_BIT
WRITES = {COMPUTE: VK_ACCESS_SHADER_WRITE_BIT, TRANSFER: VK_ACCESS_TRANSFER_WRITE_BIT}
READS = {COMPUTE: VK_ACCESS_SHADER_READ_BIT, TRANSFER: VK_ACCESS_TRANSFER_READ_BIT}
FOREVER = ctypes.c_uint64(2**64 - 1)
SPIN_SECONDS = 0.02  # longer than a token takes, shorter than most prompts

_WRITTEN, _READ = WRITES[COMPUTE] | WRITES[TRANSFER], READS[COMPUTE] | READS[TRANSFER]


def _barrier(writes: int, accesses: int) -> ctypes._CArgObject:
    return ctypes.byref(VkMemoryBarrier(srcAccessMask=writes, dstAccessMask=accesses))


COMPUTE_BARRIER = _barrier(WRITES[COMPUTE], WRITES[COMPUTE] | READS[COMPUTE])
FULL_BARRIER = _barrier(_WRITTEN, _WRITTEN | _READ)
FIRST_BARRIER = _barrier(_WRITTEN | VK_ACCESS_HOST_WRITE_BIT, _WRITTEN | _READ)
HOST_BARRIER = _barrier(_WRITTEN, VK_ACCESS_HOST_READ_BIT)


class Bound(NamedTuple):
    """State bound by a dispatch: handles, with ``sets`` as ``VkDescriptorSet[1]``."""

    pipeline: ctypes.c_uint64
    layout: ctypes.c_uint64
    sets: Handles | None
    push: bytes


NOTHING = Bound(ctypes.c_uint64(), ctypes.c_uint64(), None, b"")
_NO_FENCE = ctypes.c_uint64()


class NativeCommandBuffer(CommandBuffer):
    """A ``VkCommandBuffer`` with a reused fence, since creating one takes half a millisecond."""

    def __init__(self, device: LogicalDevice, descriptors: Descriptors, n_timestamps: int) -> None:
        self._device = device
        self._descriptors = descriptors
        self.n_timestamps = n_timestamps
        self._pending = False
        self._used = False  # the fence was used by an earlier submit
        self._pool = device.pools.own
        self.handle = self._pool.new()
        self._fence = ctypes.c_uint64(device.new_fence())
        self.queries = self._new_queries() if n_timestamps else None
        self._handles = (ctypes.c_size_t * 1)(self.handle)
        self._fences = (ctypes.c_uint64 * 1)(self._fence.value)
        self._last = _submit(self._handles)
        self._earlier: list[tuple[int, VkSubmitInfo]] = []  # parts that are submitted before, on their own
        device.ledger.opened(self)

    def _new_queries(self) -> int:
        how = VkQueryPoolCreateInfo(queryType=VK_QUERY_TYPE_TIMESTAMP, queryCount=self.n_timestamps)
        return created(lib.vkCreateQueryPool, self._device.handle, how, "cannot make a command buffer")

    def part(self) -> int:
        """Return a new ``VkCommandBuffer`` for the next commands; commands recorded so far are submitted before."""
        self._earlier.append((self.handle, self._last))
        self.handle = self._pool.new()
        self._handles = (ctypes.c_size_t * 1)(self.handle)
        self._last = _submit(self._handles)
        return self.handle

    def encoder(self) -> NativeEncoder:
        return NativeEncoder(self._device, self._descriptors, self)

    def hold(self) -> None:
        gate = self._device.gate
        if gate is not None and gate.held is None and not self._earlier:
            self._make_ready()
            with self._device.submitting:
                self._submitted(gate.submit(self._device.queue, self, self._handles, self._fence))

    def commit(self) -> None:
        with self._device.submitting:
            held = self._is_held
            self._device.open_gate()
        if not held:
            self._make_ready()
            with self._device.submitting:
                self._submit_parts()

    def _submit_parts(self) -> None:
        result = 0
        for _, part in self._earlier:
            result = result or lib.vkQueueSubmit(self._device.queue, 1, ctypes.byref(part), _NO_FENCE)
        result = result or lib.vkQueueSubmit(self._device.queue, 1, ctypes.byref(self._last), self._fence)
        if result and self._earlier:
            lib.vkDeviceWaitIdle(self._device.handle)  # for the parts that run
        self._submitted(result)

    @property
    def _is_held(self) -> bool:
        return self._device.gate is not None and self._device.gate.held is self

    def _make_ready(self) -> None:
        self.wait()
        if self._used:
            check(lib.vkResetFences(self._device.passed, 1, self._fences), "resetting a fence")
        self._used = True

    def _submitted(self, result: int) -> None:
        if result:
            check(result, f"cannot submit commands to {self._device.description.name}")
        self._pending = True

    def wait(self, spins: bool = True) -> None:
        if self._pending:
            if self._is_held:
                self._device.open_gate()
            ended = spins and self._spin()  # after an interrupt here, the completion is still to be awaited
            self._pending = False
            if not ended:
                doing = f"waiting for {self._device.description.name}"
                check(lib.vkWaitForFences(self._device.passed, 1, self._fences, 1, FOREVER), doing)

    def _spin(self) -> bool:
        """Poll for completion for a while, since a wake-up by the driver takes 20 to 200 microseconds."""
        if self._device.description.software:
            return False  # the CPU itself computes on a software device
        status, device, fence = lib.vkGetFenceStatus, self._device.passed, self._fence
        deadline = time.monotonic() + SPIN_SECONDS
        while (result_code := status(device, fence)) == VK_NOT_READY and time.monotonic() < deadline:
            pass
        return not result_code  # the caller reports errors

    def timestamps(self) -> list[float]:
        count = self.n_timestamps
        if not count or self.queries is None:
            return []
        self.wait()
        ticks = (ctypes.c_uint64 * count)()
        flags = VK_QUERY_RESULT_64_BIT
        get = lib.vkGetQueryPoolResults
        check(get(self._device.handle, self.queries, 0, count, 8 * count, ticks, 8, flags), "reading timestamps")
        period = self._device.description.timestamp_period_ns / 1000
        return [((tick - ticks[0]) & self._device.timestamp_mask) * period for tick in ticks]

    def close(self) -> None:
        if self._device.ledger.closing(self):
            self.wait()
            device = self._device.handle
            for handle in (*(handle for handle, _ in self._earlier), self.handle):
                self._pool.free(handle)
            self._device.fences.append(self._fence.value)
            if self.queries is not None:
                lib.vkDestroyQueryPool(device, self.queries, None)


def _submit(handles: ctypes.Array[ctypes.c_size_t]) -> VkSubmitInfo:
    return VkSubmitInfo(commandBufferCount=1, pCommandBuffers=handles)


class NativeEncoder(Encoder):
    """Binds changed state lazily; descriptor sets are selected by all buffers together."""

    def __init__(self, device: LogicalDevice, descriptors: Descriptors, target: NativeCommandBuffer) -> None:
        self._device = device
        self._descriptors = descriptors
        self._target = target
        self._are_short = bool(device.description.most_dispatches)
        self._n_dispatches = self._work = 0  # of this submit
        self._pipeline: NativePipeline | None = None
        self._buffers: dict[int, NativeBuffer] = {}
        self._push = b""
        self._bound = NOTHING
        self._barrier_wanted = False
        self._stages = COMPUTE  # pipeline stages used so far
        self._begin(target.handle)
        if target.queries is not None:
            lib.vkCmdResetQueryPool(self._commands, ctypes.c_uint64(target.queries), 0, target.n_timestamps)

    def _begin(self, handle: int) -> None:
        """Record into a command buffer, which waits for earlier ones, and for what the host has written since."""
        self._commands = ctypes.c_void_p(handle)
        begin = VkCommandBufferBeginInfo()
        check(lib.vkBeginCommandBuffer(handle, ctypes.byref(begin)), "cannot record commands")
        self._record_barrier(COMPUTE | TRANSFER | HOST, COMPUTE | TRANSFER, FIRST_BARRIER)

    def _next_part(self) -> None:
        self._end()
        self._n_dispatches = self._work = 0
        self._bound, self._barrier_wanted = NOTHING, False
        self._begin(self._target.part())

    def _make_room(self, work: int) -> None:
        """Begin another submit if this one would be too long with a dispatch of so much work."""
        limits = self._device.description
        is_full = self._n_dispatches == limits.most_dispatches
        is_long = 0 < limits.most_work < self._work + work
        if is_full or (is_long and self._n_dispatches):
            self._next_part()
        self._n_dispatches += 1
        self._work += work

    def _end(self) -> None:
        check(lib.vkEndCommandBuffer(self._target.handle), "cannot record commands")

    def set_pipeline(self, pipeline: ComputePipeline) -> None:
        assert isinstance(pipeline, NativePipeline)
        self._pipeline = pipeline

    def set_buffer(self, index: int, buffer: Buffer) -> None:
        assert isinstance(buffer, NativeBuffer)
        self._buffers[index] = buffer

    def set_bytes(self, data: bytes | NDArray[np.uint32]) -> None:
        self._push = bytes(data)

    def dispatch_threadgroups(self, x: int, y: int = 1, z: int = 1) -> None:
        if self._pipeline is None:
            raise ValueError("no pipeline is set")
        self._dispatch(self._bind(self._pipeline, self._buffers, self._push, (x, y, z)), x, y, z)

    def launch(self, launch: Launch) -> None:
        bound = launch.bound
        if not isinstance(bound, Bound):
            assert isinstance(launch.pipeline, NativePipeline)
            buffers = cast("dict[int, NativeBuffer]", dict(enumerate(launch.buffers)))
            bound = launch.bound = self._bind(launch.pipeline, buffers, launch.push, launch.grid)
        self._dispatch(bound, *launch.grid, launch.work)

    def _bind(
        self,
        pipeline: NativePipeline,
        buffers: Mapping[int, NativeBuffer],
        push: bytes,
        grid: tuple[int, int, int],
    ) -> Bound:
        bindings = check_dispatch(self._device.description, pipeline, buffers, len(push), grid)
        sets = self._descriptors.descriptor_set(bindings) if bindings else None
        return Bound(pipeline.handle, pipeline.layout, sets, push)

    def _dispatch(self, bound: Bound, x: int, y: int, z: int, work: int = 0) -> None:
        if self._are_short:
            self._make_room(work)
        if self._barrier_wanted:
            self._settle(COMPUTE)
        commands, before = self._commands, self._bound
        pipeline, layout, sets, push = bound
        if pipeline is not before.pipeline:
            lib.vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline)
        if sets is not None and (sets is not before.sets or layout is not before.layout):
            lib.vkCmdBindDescriptorSets(commands, VK_PIPELINE_BIND_POINT_COMPUTE, layout, 0, 1, sets, 0, None)
        if push and (push != before.push or layout is not before.layout):
            lib.vkCmdPushConstants(commands, layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, len(push), push)
        self._bound = bound
        lib.vkCmdDispatch(commands, x, y, z)

    def copy_buffer(self, source: Buffer, source_offset: int, target: Buffer, target_offset: int, n_bytes: int) -> None:
        assert isinstance(source, NativeBuffer)
        assert isinstance(target, NativeBuffer)
        check_copy(source, source_offset, target, target_offset, n_bytes)
        self._settle(TRANSFER)
        region = VkBufferCopy(srcOffset=source_offset, dstOffset=target_offset, size=n_bytes)
        source_handle, target_handle = ctypes.c_uint64(source.handle), ctypes.c_uint64(target.handle)
        lib.vkCmdCopyBuffer(self._commands, source_handle, target_handle, 1, ctypes.byref(region))

    def barrier(self) -> None:
        self._barrier_wanted = True

    def timestamp(self, index: int) -> None:
        check_timestamp(index, self._target.n_timestamps)
        assert self._target.queries is not None
        lib.vkCmdWriteTimestamp(
            self._commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, ctypes.c_uint64(self._target.queries), index
        )

    def end(self) -> None:
        self._record_barrier(COMPUTE | TRANSFER, HOST, HOST_BARRIER)
        self._end()

    def _settle(self, stage: int) -> None:
        """Record a requested barrier before a command of ``stage``; copies are included from the first copy on."""
        self._stages |= stage
        if self._barrier_wanted:
            self._barrier_wanted = False
            barrier = COMPUTE_BARRIER if self._stages == COMPUTE else FULL_BARRIER
            self._record_barrier(self._stages, self._stages, barrier)

    def _record_barrier(self, before: int, after: int, barrier: ctypes._CArgObject) -> None:
        lib.vkCmdPipelineBarrier(self._commands, before, after, 0, 1, barrier, 0, None, 0, None)
