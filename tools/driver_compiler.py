"""Compile pipelines by Mesa's drivers without their GPUs: ``python -m tools.driver_compiler``, a process per device.

RADV opens a device of any generation if ``RADV_FORCE_FAMILY`` names it (until Mesa 25); other drivers, and newer ones,
open those that Mesa's drm-shims stand for. They compile shaders as for the GPU, and compute nothing. Requests are
lines of JSON on standard input, answers lines on standard output, so that a crash of the compiler is that of the
request without an answer.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from ctypes import c_char, c_int32, c_uint32, c_uint64, c_void_p
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [] if str(ROOT) in sys.path else [str(ROOT)]
from pumice.plugin import BackendError  # noqa: E402
from pumice_vulkan.device import DeviceDescription, MatrixShape  # noqa: E402
from pumice_vulkan.device.native.structure import Structure  # noqa: E402

EXTENSION = "VK_KHR_pipeline_executable_properties"
STATISTICS_BIT = 0x40  # VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR
MEMORY_BYTES = 2**34
_TEXT = c_char * 256  # VK_MAX_DESCRIPTION_SIZE


class ExecutableFeatures(Structure):
    """VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR."""

    TYPE = 1000269000
    _fields_ = (("sType", c_int32), ("pNext", c_void_p), ("pipelineExecutableInfo", c_uint32))


class ExecutableInfo(Structure):
    """VkPipelineExecutableInfoKHR."""

    TYPE = 1000269003
    _fields_ = (("sType", c_int32), ("pNext", c_void_p), ("pipeline", c_uint64), ("executableIndex", c_uint32))


class ExecutableStatistic(Structure):
    """VkPipelineExecutableStatisticKHR; RADV's numbers are all of 64 bits."""

    TYPE = 1000269004
    _fields_ = (
        *(("sType", c_int32), ("pNext", c_void_p), ("name", _TEXT), ("description", _TEXT)),
        *(("format", c_int32), ("value", c_uint64)),
    )


@dataclass(frozen=True)
class Pipeline:
    """A kernel as a backend asks for it; ``subgroup``: the size of subgroups."""

    kernel: str
    constants: tuple[int, ...]
    n_buffers: int
    push_bytes: int
    full_subgroups: bool
    subgroup: int

    def __str__(self) -> str:
        return " ".join([self.kernel, *map(str, self.constants)])


@dataclass(frozen=True)
class Result:
    """The result of a compilation: statistics of the driver by name, or why there is no pipeline."""

    statistics: Mapping[str, int]
    problem: str = ""


@dataclass(frozen=True)
class Mesa:
    """A Mesa: the system's, or one of another release that ``dpkg -x`` unpacked into a folder with what it needs.

    ``shims``: folder with Mesa's drm-shims, such as ``amdgpu_shim.so`` (tools/drm_shims.sh builds them).
    """

    folder: Path = Path("/")
    shims: Path | None = None

    def command(self, driver: str, variables: Mapping[str, str], shim: str) -> tuple[list[str], dict[str, str]]:
        """Return a command that runs Python with a driver, such as "radeon", and its environment.

        Raises BackendError if the driver or the shim is missing.
        """
        drivers = sorted((self.folder / "usr/share/vulkan/icd.d").glob(f"{driver}_icd*.json"))
        if not drivers:
            raise BackendError(f"{self.folder}: no Vulkan driver {driver} (Debian: mesa-vulkan-drivers)")
        path = self.shims / f"{shim}_shim.so" if self.shims and shim else None
        if shim and (path is None or not path.exists()):
            raise BackendError(f"no drm-shim {shim} in {self.shims}; build it with tools/drm_shims.sh")
        chosen = {name: str(drivers[0]) for name in ("VK_DRIVER_FILES", "VK_ICD_FILENAMES")}
        environment = {**chosen, "VK_LOADER_DRIVERS_SELECT": "*", **variables}
        libraries = self.folder / "usr/lib/x86_64-linux-gnu"
        loader = libraries / "ld-linux-x86-64.so.2"
        if self.folder != Path("/") and loader.exists():  # of a newer C library
            preload = ["--preload", str(path)] if path else []
            paths = f"{libraries}:/usr/lib/x86_64-linux-gnu"
            return [str(loader), *preload, "--library-path", paths, sys.executable], environment
        environment |= {"LD_PRELOAD": str(path)} if path else {}
        environment |= {"LD_LIBRARY_PATH": str(libraries)} if self.folder != Path("/") else {}
        return [sys.executable], environment


class Compiler:
    """The compiler of a device, in a process of its own. Raises BackendError if the driver opens none."""

    def __init__(self, mesa: Mesa, driver: str, variables: Mapping[str, str], shim: str = "") -> None:
        command, environment = mesa.command(driver, variables, shim)
        cacheless = {"MESA_SHADER_CACHE_DISABLE": "true", "PYTHONPATH": str(ROOT)}
        self._process = subprocess.Popen(
            [*command, "-m", "tools.driver_compiler"],
            env={**os.environ, **cacheless, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        answer = self._answer()
        if "device" not in answer:
            self.close()
            raise BackendError(answer["problem"])
        self.description = _described(answer["device"])

    def compile(self, pipelines: Iterable[Pipeline]) -> Iterator[Result]:
        """Yield the result of each pipeline; none follows one at which the compiler crashes."""
        assert self._process.stdin is not None
        for pipeline in pipelines:
            self._process.stdin.write(json.dumps(asdict(pipeline)) + "\n")
            self._process.stdin.flush()
            answer = self._answer()
            yield Result(answer.get("statistics", {}), answer.get("problem", ""))
            if self._process.poll() is not None:
                return

    def close(self) -> None:
        self._process.communicate()

    def __enter__(self) -> Compiler:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            return {"problem": f"the driver ends with status {self._process.wait()}"}
        answer: dict[str, Any] = json.loads(line)
        return answer


def _described(numbers: dict[str, Any]) -> DeviceDescription:
    """Return the description that was JSON."""
    made: dict[str, Any] = {}
    for field in fields(DeviceDescription):
        value = numbers[field.name]
        made[field.name] = tuple(value) if isinstance(value, list) else value
    made["features"], made["avoided"] = frozenset(made["features"]), frozenset(made["avoided"])
    made["cooperative_matrices"] = tuple(MatrixShape(**shape) for shape in made["cooperative_matrices"])
    return DeviceDescription(**made)


def _serve() -> None:
    """Answer requests until there are no more."""
    from dataclasses import replace

    from pumice_vulkan.device.native.binding import VK_MEMORY_HEAP_DEVICE_LOCAL_BIT
    from pumice_vulkan.device.native.descriptors import Descriptors
    from pumice_vulkan.device.native.instance import instance
    from pumice_vulkan.device.native.logical import LogicalDevice
    from pumice_vulkan.device.native.pipeline import NativePipeline
    from pumice_vulkan.shaders import shader

    class MeasuredPipeline(NativePipeline):
        flags = STATISTICS_BIT

    physical = instance().physical_devices()[0]
    if not physical.has_memory:
        physical.memory.memoryHeapCount = 1
        physical.memory.memoryHeaps[0].size = MEMORY_BYTES
        physical.memory.memoryHeaps[0].flags = VK_MEMORY_HEAP_DEVICE_LOCAL_BIT
    _say(device=asdict(physical.describe(0)))
    physical.features.names.discard("timeline_semaphore")  # there is no queue that would signal it
    if EXTENSION in physical.extensions:
        physical.features.extensions.append(EXTENSION)
        physical.features.head.chain(ExecutableFeatures).pipelineExecutableInfo = 1
    logical = LogicalDevice(physical, 0)
    descriptors = Descriptors(logical)
    for line in sys.stdin:
        asked = Pipeline(**json.loads(line))
        try:
            logical.limit(replace(logical.description, subgroup_size=asked.subgroup))
            layout = descriptors.pipeline_layout(asked.n_buffers, asked.push_bytes)
            pipeline = MeasuredPipeline(
                *(logical, layout, shader(asked.kernel), asked.n_buffers, asked.push_bytes),
                *(asked.constants, asked.full_subgroups),
            )
        except BackendError as error:
            _say(problem=str(error))
            continue
        _say(statistics=_statistics(instance().handle, logical.handle, pipeline.handle.value))
        pipeline.close()


def _statistics(instance: int, device: int, pipeline: int) -> dict[str, int]:
    from pumice_vulkan.device.native.api import lib, listed

    place = lib.vkGetInstanceProcAddr(instance, b"vkGetPipelineExecutableStatisticsKHR")
    if not place:
        return {}
    function = ctypes.CFUNCTYPE(c_int32, c_void_p, c_void_p, c_void_p, c_void_p)(place)
    about = ExecutableInfo(pipeline=pipeline, executableIndex=0)
    statistics = listed(
        lambda count, items: function(device, ctypes.byref(about), count, items), ExecutableStatistic, "statistics"
    )
    return {item.name.decode(): item.value for item in statistics}


def _say(**answer: object) -> None:
    print(json.dumps(answer, default=list), flush=True)


if __name__ == "__main__":
    try:
        _serve()
    except BackendError as error:
        _say(problem=str(error))
