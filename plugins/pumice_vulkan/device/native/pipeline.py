"""Compute pipelines."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from pumice_vulkan.device.contract import ComputePipeline
from pumice_vulkan.device.native.api import ffi, lib, reporting, vk
from pumice_vulkan.device.native.logical import LogicalDevice

FULL_SUBGROUPS = 2  # VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT, which the package lacks


class NativePipeline(ComputePipeline):
    """A ``VkPipeline``; its layout is shared with pipelines of the same interface."""

    def __init__(
        self,
        device: LogicalDevice,
        layout: Any,
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
        # The package keeps pointers of structures alive only as long as these names do.
        entries = [vk.VkSpecializationMapEntry(constantID=i, offset=4 * i, size=4) for i in range(len(constants))]
        data = ffi.new("char[]", struct.pack(f"<{len(constants)}I", *(value & 0xFFFFFFFF for value in constants)))
        special = vk.VkSpecializationInfo(pMapEntries=entries, dataSize=4 * len(constants), pData=data)
        full = full_subgroups and "full_subgroups" in device.description.features
        with reporting("cannot compile a shader"):
            module = vk.vkCreateShaderModule(
                device.handle, vk.VkShaderModuleCreateInfo(codeSize=len(spirv), pCode=spirv), None
            )
            try:
                stage = vk.VkPipelineShaderStageCreateInfo(
                    pNext=device.subgroup_size_request,
                    flags=FULL_SUBGROUPS if full else 0,
                    stage=vk.VK_SHADER_STAGE_COMPUTE_BIT,
                    module=module,
                    pName="main",
                    pSpecializationInfo=special if constants else None,
                )
                create = vk.VkComputePipelineCreateInfo(stage=stage, layout=self.layout, basePipelineIndex=-1)
                created = vk.vkCreateComputePipelines(device.handle, device.pipeline_cache.handle, 1, [create], None)
                self.handle = created[0]
            finally:
                lib.vkDestroyShaderModule(device.handle, module, ffi.NULL)
        device.ledger.opened(self)

    def close(self) -> None:
        if self._device.ledger.closing(self):
            lib.vkDestroyPipeline(self._device.handle, self.handle, ffi.NULL)
