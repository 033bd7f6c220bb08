"""The binding of Vulkan: generated from Khronos' registry, and structures that keep what they point to."""

import ctypes
import gc
import subprocess
import sys
import weakref
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))
from tools import vulkan_binding  # noqa: E402

pytestmark = pytest.mark.usefixtures("vulkan_device")

TINY = """<registry>
<types>
  <type category="define" api="vulkan">#define <name>VK_HEADER_VERSION</name> 7</type>
  <type category="define" api="vulkan">#define <name>VK_HEADER_VERSION_COMPLETE</name> VK_MAKE(0, 1, 9, V)</type>
  <type category="basetype">typedef <type>uint32_t</type> <name>VkFlags</name>;</type>
  <type category="bitmask">typedef <type>VkFlags</type> <name>VkStoneFlags</name>;</type>
  <type category="handle"><type>VK_DEFINE_HANDLE</type>(<name>VkQuarry</name>)</type>
  <type category="handle"><type>VK_DEFINE_NON_DISPATCHABLE_HANDLE</type>(<name>VkStone</name>)</type>
  <type category="enum" name="VkStructureType"/>
  <type category="struct" name="VkStoneInfo">
    <member values="VK_STRUCTURE_TYPE_STONE_INFO"><type>VkStructureType</type> <name>sType</name></member>
    <member>const <type>void</type>* <name>pNext</name><comment>or [none]*</comment></member>
    <member><type>VkStoneFlags</type> <name>flags</name></member>
    <member><type>float</type> <name>sizes</name>[<enum>VK_SIDES</enum>]</member>
    <member api="vulkansc"><type>uint32_t</type> <name>safe</name></member>
    <member><type>VkInner</type> <name>inner</name></member>
  </type>
  <type category="struct" name="VkInner"><member>const <type>char</type>* <name>pName</name></member></type>
</types>
<enums name="API Constants"><enum name="VK_SIDES" value="6"/></enums>
<enums name="VkResult" type="enum"><enum name="VK_ERROR_CRACK" value="-3"/></enums>
<commands>
  <command><proto><type>void</type> <name>vkBreak</name></proto>
    <param><type>VkQuarry</type> <name>quarry</name></param><param><type>VkStone</type> <name>stone</name></param>
  </command>
</commands>
<feature api="vulkan" name="VK_VERSION_1_9"><require>
  <enum offset="2" extnumber="5" extends="VkStructureType" name="VK_STRUCTURE_TYPE_STONE_INFO"/>
</require></feature>
<extensions><extension name="VK_KHR_break" number="3"><require>
  <enum offset="1" dir="-" extends="VkResult" name="VK_ERROR_BROKEN_KHR"/>
  <enum bitpos="4" extends="VkStoneFlagBits" name="VK_STONE_HARD_BIT_KHR"/><command name="vkBreak"/>
</require></extension></extensions>
</registry>"""


def test_the_generator_reads_what_registries_have(tmp_path):
    (tmp_path / "vk.xml").write_text(TINY)
    registry = vulkan_binding.Registry(tmp_path / "vk.xml")
    text = vulkan_binding.binding(registry, {"VkStoneInfo", "vkBreak", "VK_STONE_HARD_BIT_KHR", "VK_ERROR_BROKEN_KHR"})
    assert text.startswith('"""Vulkan 1.9.7, from Khronos\' registry; written by tools/vulkan_binding.py."""\n')
    found: dict[str, object] = {}
    exec(text, found)
    assert (found["VK_STONE_HARD_BIT_KHR"], found["VK_ERROR_BROKEN_KHR"]) == (16, -1000002001)
    assert found["RESULTS"] == {-3: "VK_ERROR_CRACK"}
    assert found["EXTENSIONS"] == ["vkBreak"]
    assert found["SIGNATURES"] == {"vkBreak": (None, (ctypes.c_void_p, ctypes.c_uint64))}
    stone = found["VkStoneInfo"](flags=1)
    assert (stone.sType, stone.flags) == (1000004002, 1)
    kinds = {"sType": ctypes.c_int32, "pNext": ctypes.c_void_p, "flags": ctypes.c_uint32, "inner": found["VkInner"]}
    assert dict(stone._fields_) == kinds | {"sizes": ctypes.c_float * 6}


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


def test_the_binding_has_what_the_driver_names_and_nothing_else():
    from pumice_vulkan.device.native import binding

    named = vulkan_binding.named(vulkan_binding.FOLDER)
    functions = {name for name in named if name.startswith("vk") and name != vulkan_binding.Path("vkCmd").name}
    assert set(binding.SIGNATURES) == functions
    assert {name for name in vars(binding) if name.startswith("VK_")} <= named


def test_structures_have_the_sizes_of_c():
    from pumice_vulkan.device.native import binding

    sizes = {"VkPhysicalDeviceLimits": 504, "VkPhysicalDeviceProperties2": 840, "VkSubmitInfo": 72, "VkBufferCopy": 24}
    assert {name: ctypes.sizeof(getattr(binding, name)) for name in sizes} == sizes


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


def test_a_misspelt_field_is_an_error():
    from pumice_vulkan.device.native.binding import VkBufferCopy

    with pytest.raises(AttributeError, match="srcOfset"):
        VkBufferCopy(srcOfset=4)


def test_the_binding_needs_no_package():
    code = "import sys, pumice_vulkan.device.native; print([n for n in ('vulkan', 'cffi') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
