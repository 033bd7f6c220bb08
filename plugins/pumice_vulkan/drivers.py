"""Files that Vulkan's loader and GPU drivers open."""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import subprocess
from pathlib import Path

from pumice.plugin.unstable import Access
from pumice_vulkan.folders import folders

_DEV = "/dev"
_NODES = ("dri", "nvidia*", "kfd", "dxg", "mali*", "kgsl-3d0", "udmabuf", "dma_heap")
_CONFIGURATION = ("/etc/vulkan", "/etc/glvnd", "/etc/drirc", "/etc/nvidia")
_ABOUT_DEVICES = (
    "/proc/devices",
    "/proc/driver",
    "/proc/modules",
    "/proc/sys/dev",
    "/sys/bus",
    "/sys/class/drm",
    "/sys/dev/char",
    "/sys/devices",
    "/sys/module",
)
_SECONDS = 60
_LISTS_OF_FILES = ("VK_DRIVER_FILES", "VK_ICD_FILENAMES", "VK_ADD_DRIVER_FILES", "VK_LAYER_PATH", "VK_ADD_LAYER_PATH")


def driver_access() -> Access:
    """Return the device nodes, device information, and the locations of drivers and layers.

    Must be called in a process that is not confined.
    """
    _make_nodes()
    data = os.environ.get("XDG_DATA_HOME", "") or os.path.expanduser("~/.local/share")
    named = [path for name in _LISTS_OF_FILES for path in os.environ.get(name, "").split(os.pathsep) if path]
    return Access(
        read=(*_CONFIGURATION, *_ABOUT_DEVICES, str(Path(data) / "vulkan"), *named, *map(str, folders())),
        devices=tuple(path for node in _NODES for path in glob.glob(f"{_DEV}/{node}")),
    )


def _make_nodes() -> None:
    """Create NVIDIA's device nodes if they are missing.

    The driver would run the same setuid program, which a confined process cannot.
    """
    program = shutil.which("nvidia-modprobe")
    if program and not os.path.exists(f"{_DEV}/nvidiactl"):
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            command = [program, "-c", "0", "-u", "-m"]
            subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=False)
