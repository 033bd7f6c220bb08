"""The binding of Vulkan: generated from Khronos' registry, and structures that keep what they point to."""

import ctypes
import gc
import sys
import weakref
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))
from tools import vulkan_binding  # noqa: E402

pytestmark = pytest.mark.usefixtures("vulkan_device")


def described(text):
    """The constants, structures, functions and errors of a binding, by name."""
    found: dict[str, object] = {}
    exec(text, found)
    parts = {name: value for name, value in found.items() if name.startswith("VK_")}
    for name, value in found.items():
        if name.startswith("Vk"):
            parts[name] = value.TYPE, [(field, kind.__name__) for field, kind in value._fields_]
    return parts | found["SIGNATURES"] | found["RESULTS"]


def test_the_binding_is_what_the_registry_gives():
    path = vulkan_binding.REGISTRY
    if not path.exists():
        pytest.skip(f"{path} is missing (Debian: libvulkan-dev)")
    registry = vulkan_binding.Registry(path)
    made = vulkan_binding.binding(registry, vulkan_binding.named(vulkan_binding.FOLDER))
    committed = vulkan_binding.TARGET.read_text()
    if made.partition("\n")[0] == committed.partition("\n")[0]:
        assert made == committed
    known, ours = described(made), described(committed)  # a registry of another version has fewer or more names
    both = known.keys() & ours.keys()
    assert len(both) > 0.9 * len(ours)
    assert {name: known[name] for name in both} == {name: ours[name] for name in both}


def test_memory_referenced_by_a_structure_lives_as_long():
    from pumice_vulkan.device.native.binding import VkComputePipelineCreateInfo, VkPipelineShaderStageCreateInfo
    from pumice_vulkan.device.native.structure import Structure, array

    class Numbers(Structure):
        _fields_ = (("number", ctypes.c_uint32),)

    pointee = Numbers(number=7)
    alive = weakref.ref(pointee)
    stage = VkPipelineShaderStageCreateInfo(pNext=pointee, pName=b"main")
    row = array(VkComputePipelineCreateInfo, [VkComputePipelineCreateInfo(stage=stage)])
    del pointee, stage
    gc.collect()
    assert alive() is not None
    assert Numbers.from_address(row[0].stage.pNext).number == 7
    del row
    gc.collect()
    assert alive() is None
