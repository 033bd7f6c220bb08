"""The Khronos validation layer finds nothing wrong with what the native driver records."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from device_commands import SHADERS

VALIDATION = "VK_LAYER_KHRONOS_validation"


def layers(name):
    """The ``VkLayerProperties`` of all layers, whose first members are their names."""
    list_layers = ctypes.CDLL(name).vkEnumerateInstanceLayerProperties
    count = ctypes.c_uint32()
    list_layers(ctypes.byref(count), None)
    found = ctypes.create_string_buffer(520 * count.value)
    list_layers(ctypes.byref(count), found)
    return found.raw


@pytest.fixture
def validate(driver, tmp_path):
    """Runs Python under the Khronos validation layer, and gives all it printed."""
    if driver != "native":
        pytest.skip("Kompute records what it records")
    from pumice_vulkan.device.native.loader import names

    if VALIDATION.encode() not in layers(next(names())):
        pytest.skip(f"{VALIDATION} is not installed (Debian: vulkan-validationlayers)")
    settings = tmp_path / "vk_layer_settings.txt"
    settings.write_text(
        "khronos_validation.report_flags = error,warn\nkhronos_validation.debug_action = VK_DBG_LAYER_ACTION_LOG_MSG\n"
    )
    environment = os.environ | {
        "VK_INSTANCE_LAYERS": VALIDATION,
        "VK_LAYER_SETTINGS_PATH": str(settings),
        "VK_LAYER_ENABLES": "VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT",
    }

    def run(*arguments):
        done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    return run


def test_validation_has_nothing_to_say(validate):
    tests = [str(Path(__file__).with_name(name)) for name in ("test_device.py", "test_device_errors.py")]
    only = "native and not refuses"
    status, output = validate("-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "-k", only, *tests)
    assert status == 0, output
    assert "Validation" not in output
    assert "VUID" not in output


def test_validation_sees_a_missing_barrier(validate):
    code = f"""
from pathlib import Path
from pumice_vulkan.device import open_device
device = open_device("native")
commands = device.new_command_buffer()
encoder = commands.encoder()
encoder.set_pipeline(device.new_pipeline(Path({str(SHADERS / "neighbours.spv")!r}).read_bytes(), 2, 8))
encoder.set_bytes(bytes(8))
here, there = device.new_buffer(64), device.new_buffer(64)
for source, target in ((here, there), (there, here)):
    encoder.set_buffer(0, source)
    encoder.set_buffer(1, target)
    encoder.dispatch_threadgroups(1)
encoder.end()
device.close()
"""
    _, output = validate("-c", code)
    assert "SYNC-HAZARD" in output
