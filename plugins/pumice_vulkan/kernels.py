"""The compiled kernels of one device."""

from __future__ import annotations

from pumice_vulkan.device import ComputePipeline, Device
from pumice_vulkan.lower.rule import Dispatch
from pumice_vulkan.shaders import shader


class Kernels:
    """Pipelines, each made when it is first needed."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._pipelines: dict[tuple[str, tuple[int, ...]], ComputePipeline] = {}

    def pipeline(self, dispatch: Dispatch) -> ComputePipeline:
        key = dispatch.kernel, dispatch.constants
        if key not in self._pipelines:
            self._pipelines[key] = self._device.new_pipeline(
                shader(dispatch.kernel),
                len(dispatch.buffers),
                len(dispatch.push),
                dispatch.constants,
                full_subgroups=dispatch.full_subgroups,
            )
        return self._pipelines[key]
