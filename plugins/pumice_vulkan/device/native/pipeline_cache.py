"""The pipeline cache: compiled pipelines, kept in a file for each device and driver."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
from pathlib import Path

from pumice.plugin.unstable import read_file, write_file
from pumice_vulkan.device.contract import DeviceDescription
from pumice_vulkan.device.native.api import check, created, lib
from pumice_vulkan.device.native.binding import VkPipelineCacheCreateInfo
from pumice_vulkan.folders import folders

SUFFIX = ".pipelines"
MOST_BYTES = 64 * 2**20  # maximum size of a file; a model on an H200 takes 2 MiB
DIGEST = hashlib.sha256


class PipelineCache:
    """A ``VkPipelineCache`` initialized from the file of its device and driver.

    Drivers may crash on data that they did not write, so a file is used only if the digest at its beginning is right.
    """

    def __init__(self, device: int, description: DeviceDescription) -> None:
        self._device = device
        self._files = _files(description)
        initial = _read(self._files)
        how = VkPipelineCacheCreateInfo(initialDataSize=len(initial), pInitialData=initial or None)
        self.handle = created(lib.vkCreatePipelineCache, device, how, "cannot make a pipeline cache")
        self.is_known = bool(initial)  # an earlier process kept pipelines
        self._n_saved = len(initial)

    def save(self) -> None:
        """Write the file if there are new pipelines. A file that cannot be written is skipped."""
        data = self._data()
        if not self._files or not self._n_saved < len(data) <= MOST_BYTES:
            return
        with contextlib.suppress(OSError):
            write_file(self._files[-1], DIGEST(data).digest() + data)
            self._n_saved = len(data)

    def _data(self) -> bytes:
        size, doing = ctypes.c_size_t(), "reading the pipeline cache"
        check(lib.vkGetPipelineCacheData(self._device, self.handle, ctypes.byref(size), None), doing)
        data = ctypes.create_string_buffer(max(size.value, 1))
        check(lib.vkGetPipelineCacheData(self._device, self.handle, ctypes.byref(size), data), doing)
        return data.raw[: size.value]

    def close(self) -> None:
        lib.vkDestroyPipelineCache(self._device, self.handle, None)


def _files(description: DeviceDescription) -> list[Path]:
    """Return the paths of the file, of which the last is writable; none without a home."""
    about = (description.name, description.uuid, description.vulkan_driver, description.api_version)
    name = DIGEST(repr(about).encode()).hexdigest()[:32] + SUFFIX
    return [folder / name for folder in folders()]


def _read(files: list[Path]) -> bytes:
    """Return the data of the largest file with a right digest."""
    largest = b""
    for file in files:
        with contextlib.suppress(OSError):
            content = read_file(file, MOST_BYTES + DIGEST().digest_size)
            digest, data = content[: DIGEST().digest_size], content[DIGEST().digest_size :]
            if DIGEST(data).digest() == digest and len(data) > len(largest):
                largest = data
    return largest
