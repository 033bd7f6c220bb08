"""Vulkan devices and their pipelines, kept for later tests: lavapipe compiles in each new device anew."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest import mock

from pumice_vulkan.device.native.api import lib
from pumice_vulkan.device.native.logical import LogicalDevice
from pumice_vulkan.device.native.pipeline import NativePipeline

Key = tuple[int | None, bytes, tuple[int, ...], bool, int, int]


class KeptPipelines:
    """Devices that have one user after the other, each of whom sees what it made itself, and their pipelines."""

    def __init__(self) -> None:
        self._unused: list[int] = []
        self._pipelines: dict[int, dict[Key, int]] = {}  # by device

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Let devices that open in this context have kept pipelines. All of them close in it."""
        open_one, close_one = LogicalDevice._create, LogicalDevice._destroy
        compile_one, destroy_one = NativePipeline._created, NativePipeline._destroy

        def opened(device: LogicalDevice, family: int) -> int:
            try:
                return self._unused.pop()
            except IndexError:
                handle = open_one(device, family)
            self._pipelines[handle] = {}
            return handle

        def closed(device: LogicalDevice) -> None:
            if device.handle in self._pipelines:
                self._unused.append(device.handle)
            else:
                close_one(device)

        def created(pipeline: NativePipeline, spirv: bytes, constants: Sequence[int], full: bool) -> int:
            kept, key = self._pipelines.get(pipeline._device.handle, {}), _key(pipeline, spirv, constants, full)
            if key not in kept:
                kept[key] = compile_one(pipeline, spirv, constants, full)
            return kept[key]

        def destroyed(pipeline: NativePipeline) -> None:
            if pipeline._device.handle not in self._pipelines:
                destroy_one(pipeline)

        devices = mock.patch.multiple(LogicalDevice, _create=opened, _destroy=closed)
        pipelines = mock.patch.multiple(NativePipeline, _created=created, _destroy=destroyed)
        with devices, pipelines:
            yield

    def close(self) -> None:
        """Destroy the devices that nobody uses, which are all."""
        for device in self._unused:
            for pipeline in self._pipelines[device].values():
                lib.vkDestroyPipeline(device, pipeline, None)
            lib.vkDestroyDevice(device, None)


def _key(pipeline: NativePipeline, spirv: bytes, constants: Sequence[int], full: bool) -> Key:
    size = pipeline._device.subgroup_size_request
    requested = None if size is None else size.requiredSubgroupSize
    return requested, spirv, tuple(constants), full, pipeline.n_buffers, pipeline.push_bytes
