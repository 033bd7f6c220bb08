"""Compute pipelines."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence

from pumice_vulkan.device.contract import ComputePipeline
from pumice_vulkan.device.native.api import check, created, lib
from pumice_vulkan.device.native.binding import (
    VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT,
    VK_SHADER_STAGE_COMPUTE_BIT,
    VkComputePipelineCreateInfo,
    VkPipelineShaderStageCreateInfo,
    VkShaderModuleCreateInfo,
    VkSpecializationInfo,
    VkSpecializationMapEntry,
)
from pumice_vulkan.device.native.logical import LogicalDevice
from pumice_vulkan.device.native.structure import array

DOING = "cannot compile a shader"


class NativePipeline(ComputePipeline):
    """A ``VkPipeline``; its layout is shared with pipelines of the same interface."""

    flags = 0  # VkPipelineCreateFlagBits

    def __init__(
        self,
        device: LogicalDevice,
        layout: ctypes.c_uint64,
        spirv: bytes,
        n_buffers: int,
        push_bytes: int,
        constants: Sequence[int],
        full_subgroups: bool,
    ) -> None:
        self.n_buffers = n_buffers
        self.push_bytes = push_bytes
        self._device = device
        self.layout = layout
        full = full_subgroups and "full_subgroups" in device.description.features
        self.handle = ctypes.c_uint64(self._created(spirv, constants, full))
        device.ledger.opened(self)

    def _created(self, spirv: bytes, constants: Sequence[int], full: bool) -> int:
        device = self._device
        how = VkShaderModuleCreateInfo(codeSize=len(spirv), pCode=spirv)
        module = created(lib.vkCreateShaderModule, device.handle, how, DOING)
        try:
            return self._compiled(module, constants, full)
        finally:
            lib.vkDestroyShaderModule(device.handle, module, None)

    def _compiled(self, module: int, constants: Sequence[int], full: bool) -> int:
        stage = VkPipelineShaderStageCreateInfo(
            pNext=self._device.subgroup_size_request,
            flags=VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT if full else 0,
            stage=VK_SHADER_STAGE_COMPUTE_BIT,
            module=module,
            pName=b"main",
            pSpecializationInfo=_specialization(constants) if constants else None,
        )
        how = VkComputePipelineCreateInfo(flags=self.flags, stage=stage, layout=self.layout.value, basePipelineIndex=-1)
        device, handle = self._device, ctypes.c_uint64()
        cache = device.pipeline_cache.handle
        create = lib.vkCreateComputePipelines
        check(create(device.handle, cache, 1, ctypes.byref(how), None, ctypes.byref(handle)), DOING)
        return handle.value

    def close(self) -> None:
        if self._device.ledger.closing(self):
            self._destroy()

    def _destroy(self) -> None:
        lib.vkDestroyPipeline(self._device.handle, self.handle.value, None)


def _specialization(constants: Sequence[int]) -> VkSpecializationInfo:
    entries = [VkSpecializationMapEntry(constantID=i, offset=4 * i, size=4) for i in range(len(constants))]
    return VkSpecializationInfo(
        mapEntryCount=len(entries),
        pMapEntries=array(VkSpecializationMapEntry, entries),
        dataSize=4 * len(constants),
        pData=struct.pack(f"<{len(constants)}I", *(value & 0xFFFFFFFF for value in constants)),
    )
