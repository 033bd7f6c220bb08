"""Layouts and descriptor sets: how pipelines find their buffers. Each kind is made once and kept."""

from __future__ import annotations

from typing import Any

from pumice_vulkan.device.native.api import ffi, lib, reporting, vk
from pumice_vulkan.device.native.logical import LogicalDevice
from pumice_vulkan.device.native.memory import NativeBuffer

COMPUTE = vk.VK_SHADER_STAGE_COMPUTE_BIT
STORAGE_BUFFER = vk.VK_DESCRIPTOR_TYPE_STORAGE_BUFFER


class Descriptors:
    """The layouts of all pipelines, and one descriptor set for each combination of buffers."""

    def __init__(self, device: LogicalDevice) -> None:
        self._device = device.handle
        self._set_layouts: dict[int, Any] = {}
        self._pipeline_layouts: dict[tuple[int, int], Any] = {}
        self._sets: dict[tuple[NativeBuffer, ...], tuple[Any, Any]] = {}  # pool, set
        device.ledger.on_closing.append(self._forget)

    def pipeline_layout(self, n_buffers: int, push_bytes: int) -> Any:
        """The layout of pipelines with so many buffers and bytes of push constants."""
        key = n_buffers, push_bytes
        if key not in self._pipeline_layouts:
            push = vk.VkPushConstantRange(stageFlags=COMPUTE, offset=0, size=push_bytes)
            create = vk.VkPipelineLayoutCreateInfo(
                pSetLayouts=[self._set_layout(n_buffers)], pPushConstantRanges=[push] if push_bytes else []
            )
            with reporting("cannot describe a pipeline"):
                self._pipeline_layouts[key] = vk.vkCreatePipelineLayout(self._device, create, None)
        return self._pipeline_layouts[key]

    def descriptor_set(self, buffers: tuple[NativeBuffer, ...]) -> Any:
        """The set that binds these buffers to 0, 1, ..."""
        if buffers not in self._sets:
            self._sets[buffers] = self._new_set(buffers)
        return self._sets[buffers][1]

    def _forget(self, item: Any) -> None:
        """Free the sets that bind a buffer which is being closed."""
        for buffers in [key for key in self._sets if item in key]:
            pool, _ = self._sets.pop(buffers)
            lib.vkDestroyDescriptorPool(self._device, pool, ffi.NULL)

    def close(self) -> None:
        for pool, _ in self._sets.values():
            lib.vkDestroyDescriptorPool(self._device, pool, ffi.NULL)
        for layout in self._pipeline_layouts.values():
            lib.vkDestroyPipelineLayout(self._device, layout, ffi.NULL)
        for layout in self._set_layouts.values():
            lib.vkDestroyDescriptorSetLayout(self._device, layout, ffi.NULL)

    def _set_layout(self, n_buffers: int) -> Any:
        if n_buffers not in self._set_layouts:
            bindings = [
                vk.VkDescriptorSetLayoutBinding(
                    binding=index, descriptorType=STORAGE_BUFFER, descriptorCount=1, stageFlags=COMPUTE
                )
                for index in range(n_buffers)
            ]
            create = vk.VkDescriptorSetLayoutCreateInfo(pBindings=bindings)
            with reporting("cannot describe buffers"):
                self._set_layouts[n_buffers] = vk.vkCreateDescriptorSetLayout(self._device, create, None)
        return self._set_layouts[n_buffers]

    def _new_set(self, buffers: tuple[NativeBuffer, ...]) -> tuple[Any, Any]:
        """A set in a pool of its own, so that it can be freed."""
        size = vk.VkDescriptorPoolSize(type=STORAGE_BUFFER, descriptorCount=max(1, len(buffers)))
        with reporting("cannot bind buffers"):
            create = vk.VkDescriptorPoolCreateInfo(maxSets=1, pPoolSizes=[size])
            pool = vk.vkCreateDescriptorPool(self._device, create, None)
            layouts = [self._set_layout(len(buffers))]
            allocate = vk.VkDescriptorSetAllocateInfo(descriptorPool=pool, pSetLayouts=layouts)
            found = vk.vkAllocateDescriptorSets(self._device, allocate)[0]
        ranges = [vk.VkDescriptorBufferInfo(buffer=item.handle, offset=0, range=item.n_bytes) for item in buffers]
        writes = [
            vk.VkWriteDescriptorSet(
                dstSet=found, dstBinding=index, descriptorCount=1, descriptorType=STORAGE_BUFFER, pBufferInfo=[item]
            )
            for index, item in enumerate(ranges)
        ]
        vk.vkUpdateDescriptorSets(self._device, len(writes), writes, 0, None)
        return pool, found
