"""Pipeline layouts and descriptor sets, which bind buffers to pipelines. Each kind is created once and cached."""

from __future__ import annotations

import threading
from typing import Any

from pumice_vulkan.device.native.api import ffi, lib, reporting, vk
from pumice_vulkan.device.native.features import new_struct
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
        self._making = threading.RLock()
        device.ledger.on_closing.append(self._forget)

    def pipeline_layout(self, n_buffers: int, push_bytes: int) -> Any:
        """Return the layout of pipelines with these numbers of buffers and bytes of push constants."""
        key = n_buffers, push_bytes
        with self._making:
            if key not in self._pipeline_layouts:
                push = vk.VkPushConstantRange(stageFlags=COMPUTE, offset=0, size=push_bytes)
                create = vk.VkPipelineLayoutCreateInfo(
                    pSetLayouts=[self._set_layout(n_buffers)], pPushConstantRanges=[push] if push_bytes else []
                )
                with reporting("cannot describe a pipeline"):
                    self._pipeline_layouts[key] = vk.vkCreatePipelineLayout(self._device, create, None)
            return self._pipeline_layouts[key]

    def descriptor_set(self, buffers: tuple[NativeBuffer, ...]) -> Any:
        """Return the set that binds the buffers to 0, 1, ..., as ``VkDescriptorSet[1]``."""
        pool_and_set = self._sets.get(buffers)
        if pool_and_set is None:
            with self._making:
                pool_and_set = self._sets.get(buffers) or self._new_set(buffers)
                self._sets[buffers] = pool_and_set
        return pool_and_set[1]

    def _forget(self, item: Any) -> None:
        """Free the sets that bind a closing buffer."""
        with self._making:
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
        """Create a set in a pool of its own, so that it can be freed."""
        size = vk.VkDescriptorPoolSize(type=STORAGE_BUFFER, descriptorCount=max(1, len(buffers)))
        with reporting("cannot bind buffers"):
            create = vk.VkDescriptorPoolCreateInfo(maxSets=1, pPoolSizes=[size])
            pool = vk.vkCreateDescriptorPool(self._device, create, None)
            layouts = [self._set_layout(len(buffers))]
            allocate = vk.VkDescriptorSetAllocateInfo(descriptorPool=pool, pSetLayouts=layouts)
            sets = ffi.new("VkDescriptorSet[1]", [vk.vkAllocateDescriptorSets(self._device, allocate)[0]])
        ranges = ffi.new("VkDescriptorBufferInfo[]", [(item.handle, 0, item.n_bytes) for item in buffers])
        write = new_struct("VkWriteDescriptorSet")  # continues with the bindings after the first
        write.dstSet, write.descriptorCount, write.pBufferInfo = sets[0], len(buffers), ranges
        write.descriptorType = STORAGE_BUFFER
        lib.vkUpdateDescriptorSets(self._device, 1, write, 0, ffi.NULL)
        return pool, sets
