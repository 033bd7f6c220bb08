"""When the backend is there to be used, and what it says when it is not."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from pumice_vulkan.backend import _unusable
from pumice_vulkan.profiles import PROFILES

native = pytest.mark.parametrize("driver", ["native"], indirect=True)

PUMICE = [sys.executable, "-m", "pumice"]


def devices(**environment):
    """Return the lines of ``pumice devices`` about the Vulkan backend."""
    changed = {**os.environ, **environment}
    done = subprocess.run([*PUMICE, "devices", "--json"], env=changed, capture_output=True, text=True, check=True)
    return next(item for item in json.loads(done.stdout) if item["backend"] == "vulkan")


def changed(tmp_path, code):
    """An environment in which each Python runs some code first."""
    (tmp_path / "sitecustomize.py").write_text(code)
    return {"PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])}


@native
def test_a_device_is_listed_with_what_matters(driver):
    found = devices(PUMICE_VULKAN_SOFTWARE="1")
    assert found["available"]
    first = found["devices"][0]
    assert first["memory_bytes"] > 2**27
    names = {"uuid", "type", "driver", "vulkan", "subgroup size", "cooperative matrices"}
    assert first["details"].keys() - names == {"device"}
    assert first["details"]["device"] == "0"


@native
def test_a_software_device_is_not_taken_unasked(driver):
    found = devices(PUMICE_VULKAN_SOFTWARE="0")
    if any(device["details"]["type"] != "cpu" for device in found["devices"]):
        pytest.skip("this machine has a GPU")
    assert not found["available"]
    assert found["reason"].startswith("only a software Vulkan device is present (")
    assert found["reason"].endswith("set PUMICE_VULKAN_SOFTWARE=1 to use it anyway")


@native
def test_without_a_driver_it_says_what_to_install(driver, tmp_path):
    found = devices(VK_ICD_FILENAMES=str(tmp_path / "none.json"), VK_DRIVER_FILES=str(tmp_path / "none.json"))
    assert not found["available"]
    assert found["reason"] in (
        "no Vulkan driver is installed; install the graphics driver of your GPU",
        "no Vulkan device found; install the graphics driver of your GPU",
    )


@native
def test_without_the_loader_it_says_what_to_install(driver, tmp_path):
    code = """
import ctypes
class Library(ctypes.CDLL):
    def __init__(self, name, *more, **named):
        if name and "vulkan" in name:
            raise OSError(f"{name}: cannot open shared object file: No such file or directory")
        super().__init__(name, *more, **named)
ctypes.CDLL = Library
"""
    found = devices(**changed(tmp_path, code))
    assert not found["available"]
    assert found["reason"].startswith("no Vulkan loader found: install the graphics driver of your GPU")


def test_macs_have_the_loader_in_folders_of_their_own(vulkan_device, monkeypatch):
    from pumice_vulkan.device.native import loader

    monkeypatch.setattr("sys.platform", "darwin")
    monkeypatch.setenv("VULKAN_SDK", "/kit")
    names = list(loader.names())
    assert names[0] == "libvulkan.1.dylib"
    assert {"/kit/lib/libvulkan.dylib", "/opt/homebrew/lib/libMoltenVK.dylib"} <= {*names}


def test_the_plugin_loads_no_driver():
    code = "import sys, pumice_vulkan; print([n for n in ('pumice_vulkan.device.native', 'kp') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_device_of_small_workgroups_is_refused():
    described = PROFILES["hopper-h200"].described()
    assert _unusable(described) is None
    small = replace(described, max_threads_per_threadgroup=128)
    assert _unusable(small) == f"{described.name} cannot be used: workgroups have 128 of 256 invocations needed"
