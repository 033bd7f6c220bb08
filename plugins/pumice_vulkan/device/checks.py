"""Checks of both drivers before calls of Vulkan, so that a mistake is an error and not a crash."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from pumice.plugin import BackendError
from pumice_vulkan.device.contract import Buffer, ComputePipeline, DeviceDescription
from pumice_vulkan.device.resources import Resources

OUT_OF_MEMORY = "out of memory; lower n_gpu_layers or n_ctx, or choose a smaller kv_type"
LOST = "the driver has reset the device; load the model again; if it recurs, lower n_batch or update the driver"

T = TypeVar("T")
B = TypeVar("B", bound=Buffer)


def choose(devices: Sequence[T], index: int) -> T:
    """Return the device with an index given by a user."""
    if not devices:
        raise BackendError("no Vulkan device found; install the graphics driver of your GPU")
    if not 0 <= index < len(devices):
        raise BackendError(
            f"vulkan: unknown device {index}; {len(devices)} found, numbered from 0: see `pumice devices`"
        )
    return devices[index]


def check_buffer_size(device: DeviceDescription, n_bytes: int) -> None:
    if n_bytes <= 0 or n_bytes % 4:
        raise ValueError(f"a buffer of {n_bytes} bytes: the size must be a positive multiple of 4")
    if n_bytes > device.max_buffer_bytes:
        raise BackendError(
            f"vulkan: a buffer of {n_bytes} bytes is too large for {device.name}: at most {device.max_buffer_bytes}"
        )


def check_memory(device: DeviceDescription, allocated_bytes: int, n_bytes: int) -> None:
    # GPU drivers may spill into slow host memory instead of refusing, and Linux overcommits.
    if allocated_bytes + n_bytes > device.memory_bytes:
        raise BackendError(
            f"vulkan: cannot allocate {n_bytes} bytes more than {allocated_bytes} on {device.name}, "
            f"which has {device.memory_bytes}: {OUT_OF_MEMORY}"
        )


def check_free_memory(device: DeviceDescription, free_bytes: int, allocated_bytes: int, n_bytes: int) -> None:
    if n_bytes > free_bytes:
        raise BackendError(
            f"vulkan: cannot allocate {n_bytes} bytes on {device.name}, which holds {allocated_bytes} already: "
            f"{OUT_OF_MEMORY}"
        )


def check_push_bytes(device: DeviceDescription, push_bytes: int) -> None:
    if push_bytes < 0 or push_bytes % 4:
        raise ValueError(f"{push_bytes} bytes of push constants: the size must be a multiple of 4")
    if push_bytes > device.push_constant_bytes:
        raise BackendError(
            f"vulkan: {push_bytes} bytes of push constants are too many for {device.name}: "
            f"at most {device.push_constant_bytes}"
        )


def check_bindings(device: DeviceDescription, n_buffers: int) -> None:
    if n_buffers > device.max_buffers:
        raise BackendError(
            f"vulkan: {n_buffers} buffers are too many for a shader on {device.name}: at most {device.max_buffers}"
        )


def check_resources(device: DeviceDescription, taken: Resources) -> None:
    limits = {
        "invocations": (taken.threads, device.max_threads_per_threadgroup),
        "bytes of shared memory": (taken.shared_bytes, device.threadgroup_memory_bytes),
    }
    for name, (number, most) in limits.items():
        if number > most:
            raise BackendError(f"vulkan: {number} {name} are too many for {device.name}: at most {most}")


def check_dispatch(
    device: DeviceDescription,
    pipeline: ComputePipeline,
    buffers: Mapping[int, B],
    push_bytes: int,
    grid: tuple[int, int, int],
) -> tuple[B, ...]:
    """Return the buffers that the pipeline binds, in order."""
    if push_bytes != pipeline.push_bytes:
        raise ValueError(f"{push_bytes} bytes of push constants are set, the pipeline takes {pipeline.push_bytes}")
    (x, y, z), (most_x, most_y, most_z) = grid, device.max_threadgroups
    if not (1 <= x <= most_x and 1 <= y <= most_y and 1 <= z <= most_z):
        raise ValueError(f"a grid of {grid} threadgroups: allowed are 1 to {device.max_threadgroups}")
    try:
        return tuple([buffers[index] for index in range(pipeline.n_buffers)])
    except KeyError as missing:
        raise ValueError(f"no buffer is set at {missing}; the pipeline takes {pipeline.n_buffers}") from None


def check_copy(source: Buffer, source_offset: int, target: Buffer, target_offset: int, n_bytes: int) -> None:
    if n_bytes <= 0 or (n_bytes | source_offset | target_offset) % 4:
        raise ValueError(f"a copy of {n_bytes} bytes from {source_offset} to {target_offset}: must be multiples of 4")
    for buffer, offset in ((source, source_offset), (target, target_offset)):
        if offset < 0 or offset + n_bytes > buffer.n_bytes:
            raise ValueError(f"a copy of {n_bytes} bytes at {offset} exceeds the buffer's {buffer.n_bytes}")


def check_timestamp(index: int, count: int) -> None:
    if not 0 <= index < count:
        raise ValueError(f"timestamp {index}: the command buffer was made for {count}")
