"""Files that a confined engine may open for the drivers of GPUs."""

import pytest

from pumice_vulkan import drivers


@pytest.fixture
def dev(tmp_path, monkeypatch):
    (tmp_path / "dev").mkdir()
    monkeypatch.setattr(drivers, "_DEV", str(tmp_path / "dev"))
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path / "dev"


def test_device_nodes(dev):
    for name in ("dri", "nvidia0", "nvidiactl", "kfd", "sda", "mem"):
        (dev / name).touch()
    assert sorted(drivers.driver_access().devices) == [
        str(dev / name) for name in ("dri", "kfd", "nvidia0", "nvidiactl")
    ]


def test_drivers_that_the_user_names(dev, monkeypatch):
    monkeypatch.setenv("VK_DRIVER_FILES", "/opt/a.json:/opt/b.json")
    assert {"/opt/a.json", "/opt/b.json", "/etc/vulkan"} <= set(drivers.driver_access().read)


def test_nodes_of_nvidia_are_made_before_an_engine_is_confined(dev):
    program = dev.parent / "nvidia-modprobe"
    program.write_text(f"#!/bin/sh\necho > {dev}/nvidiactl\necho > {dev}/nvidia0\n")
    program.chmod(0o755)
    assert sorted(drivers.driver_access().devices) == [f"{dev}/nvidia0", f"{dev}/nvidiactl"]
    program.write_text("#!/bin/sh\nexit 1\n")
    assert len(drivers.driver_access().devices) == 2
