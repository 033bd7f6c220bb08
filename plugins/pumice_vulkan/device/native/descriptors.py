"""Pipeline layouts and descriptor sets, which bind buffers to pipelines. Each kind is created once and cached."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence

from pumice_vulkan.device.native.api import check, created, lib
from pumice_vulkan.device.native.binding import (
    VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
    VK_SHADER_STAGE_COMPUTE_BIT,
    VkDescriptorBufferInfo,
    VkDescriptorPoolCreateInfo,
    VkDescriptorPoolSize,
    VkDescriptorSetAllocateInfo,
    VkDescriptorSetLayoutBinding,
    VkDescriptorSetLayoutCreateInfo,
    VkPipelineLayoutCreateInfo,
    VkPushConstantRange,
    VkWriteDescriptorSet,
)
from pumice_vulkan.device.native.logical import LogicalDevice
from pumice_vulkan.device.native.memory import NativeBuffer
from pumice_vulkan.device.native.structure import array

Handles = ctypes.Array[ctypes.c_uint64]


class Descriptors:
    """The layouts of all pipelines, and one descriptor set for each combination of buffers."""

    def __init__(self, device: LogicalDevice) -> None:
        self._device = device.handle
        self._set_layouts: dict[int, int] = {}
        self._pipeline_layouts: dict[tuple[int, int], ctypes.c_uint64] = {}
        self._sets: dict[tuple[NativeBuffer, ...], tuple[int, Handles]] = {}  # pool, set
        self._making = threading.RLock()
        device.ledger.on_closing.append(self._forget)

    def pipeline_layout(self, n_buffers: int, push_bytes: int) -> ctypes.c_uint64:
        """Return the layout of pipelines with these numbers of buffers and bytes of push constants."""
        key = n_buffers, push_bytes
        with self._making:
            if key not in self._pipeline_layouts:
                push = VkPushConstantRange(stageFlags=VK_SHADER_STAGE_COMPUTE_BIT, offset=0, size=push_bytes)
                how = VkPipelineLayoutCreateInfo(
                    setLayoutCount=1,
                    pSetLayouts=handles(self._set_layout(n_buffers)),
                    pushConstantRangeCount=1 if push_bytes else 0,
                    pPushConstantRanges=push if push_bytes else None,
                )
                create = lib.vkCreatePipelineLayout
                handle = created(create, self._device, how, "cannot describe a pipeline")
                self._pipeline_layouts[key] = ctypes.c_uint64(handle)
            return self._pipeline_layouts[key]

    def descriptor_set(self, buffers: tuple[NativeBuffer, ...]) -> Handles:
        """Return the set that binds the buffers to 0, 1, ..., as ``VkDescriptorSet[1]``."""
        pool_and_set = self._sets.get(buffers)
        if pool_and_set is None:
            with self._making:
                pool_and_set = self._sets.get(buffers) or self._new_set(buffers)
                self._sets[buffers] = pool_and_set
        return pool_and_set[1]

    def _forget(self, item: object) -> None:
        """Free the sets that bind a closing buffer."""
        with self._making:
            for buffers in [key for key in self._sets if item in key]:
                pool, _ = self._sets.pop(buffers)
                lib.vkDestroyDescriptorPool(self._device, pool, None)

    def close(self) -> None:
        for pool, _ in self._sets.values():
            lib.vkDestroyDescriptorPool(self._device, pool, None)
        for layout in self._pipeline_layouts.values():
            lib.vkDestroyPipelineLayout(self._device, layout.value, None)
        for set_layout in self._set_layouts.values():
            lib.vkDestroyDescriptorSetLayout(self._device, set_layout, None)

    def _set_layout(self, n_buffers: int) -> int:
        if n_buffers not in self._set_layouts:
            bindings = [
                VkDescriptorSetLayoutBinding(
                    binding=index,
                    descriptorType=VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                    descriptorCount=1,
                    stageFlags=VK_SHADER_STAGE_COMPUTE_BIT,
                )
                for index in range(n_buffers)
            ]
            how = VkDescriptorSetLayoutCreateInfo(
                bindingCount=n_buffers, pBindings=array(VkDescriptorSetLayoutBinding, bindings)
            )
            create = lib.vkCreateDescriptorSetLayout
            self._set_layouts[n_buffers] = created(create, self._device, how, "cannot describe buffers")
        return self._set_layouts[n_buffers]

    def _new_set(self, buffers: tuple[NativeBuffer, ...]) -> tuple[int, Handles]:
        """Create a set in a pool of its own, so that it can be freed."""
        doing, kind = "cannot bind buffers", VK_DESCRIPTOR_TYPE_STORAGE_BUFFER
        layouts = handles(self._set_layout(len(buffers)))
        size = VkDescriptorPoolSize(type=kind, descriptorCount=max(1, len(buffers)))
        how = VkDescriptorPoolCreateInfo(maxSets=1, poolSizeCount=1, pPoolSizes=size)
        pool = created(lib.vkCreateDescriptorPool, self._device, how, doing)
        allocate = VkDescriptorSetAllocateInfo(descriptorPool=pool, descriptorSetCount=1, pSetLayouts=layouts)
        sets = handles(0)
        try:
            check(lib.vkAllocateDescriptorSets(self._device, ctypes.byref(allocate), sets), doing)
        except BaseException:
            lib.vkDestroyDescriptorPool(self._device, pool, None)
            raise
        self._write(sets[0], buffers)
        return pool, sets

    def _write(self, descriptor_set: int, buffers: Sequence[NativeBuffer]) -> None:
        infos = (VkDescriptorBufferInfo * len(buffers))()
        for info, item in zip(infos, buffers, strict=True):
            info.buffer, info.range = item.handle, item.n_bytes
        write = VkWriteDescriptorSet(  # continues with the bindings after the first
            dstSet=descriptor_set,
            descriptorCount=len(buffers),
            descriptorType=VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
            pBufferInfo=infos,
        )
        lib.vkUpdateDescriptorSets(self._device, 1, ctypes.byref(write), 0, None)


def handles(*given: int) -> Handles:
    return (ctypes.c_uint64 * len(given))(*given)
