"""When the backend is there to be used, and what it says when it is not."""

import json
import os
import subprocess
import sys

import pytest

from pumice_vulkan.device import resolve_driver

native = pytest.mark.parametrize("driver", ["native"], indirect=True)

PUMICE = [sys.executable, "-m", "pumice"]


def devices(**environment):
    """What ``pumice devices`` says of the Vulkan backend."""
    changed = {**os.environ, **environment}
    done = subprocess.run([*PUMICE, "devices", "--json"], env=changed, capture_output=True, text=True, check=True)
    return next(item for item in json.loads(done.stdout) if item["backend"] == "vulkan")


def hide(tmp_path, package):
    """An environment in which importing a package fails as if it was not installed."""
    (tmp_path / "sitecustomize.py").write_text(f"""
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name == {package!r}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Hidden())
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == {package!r} else found(name, package)
""")
    return search_first(tmp_path)


def search_first(folder):
    """An environment in which Python looks for modules in a folder before all others."""
    return {"PYTHONPATH": os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])}


@native
def test_a_device_is_listed_with_what_matters(driver):
    found = devices(PUMICE_VULKAN_SOFTWARE="1")
    assert found["available"]
    first = found["devices"][0]
    assert first["memory_bytes"] > 2**27
    expected = {"device", "uuid", "type", "driver", "vulkan", "subgroup size", "cooperative matrices"}
    assert set(first["details"]) == expected
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


def test_without_the_package_it_says_what_to_install(tmp_path):
    found = devices(**hide(tmp_path, "vulkan"))
    assert not found["available"]
    assert "pip install 'pumice[vulkan]'" in found["reason"]


@native
def test_without_the_loader_it_says_what_to_install(driver, tmp_path):
    (tmp_path / "vulkan.py").write_text("raise OSError('Cannot find Vulkan SDK version.')\n")
    found = devices(**search_first(tmp_path))
    assert not found["available"]
    assert found["reason"].startswith("the Vulkan loader is missing; install the graphics driver")


def test_the_plugin_loads_no_driver():
    code = "import sys, pumice_vulkan; print([name for name in ('vulkan', 'kp', 'cffi') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_auto_is_the_native_driver_where_kompute_is_installed_too(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    assert resolve_driver() == "native"
    assert resolve_driver("kompute") == "kompute"
