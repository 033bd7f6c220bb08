"""The system's Vulkan loader, and its functions."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator

from pumice.plugin import BackendError
from pumice_vulkan.device.native.binding import EXTENSIONS, SIGNATURES, UNCONVERTED, Functions

RECORDING = "vkCmd"  # functions that end at once, so that other threads of Python need not run meanwhile

_NAMES = {
    "win32": ("vulkan-1.dll",),
    "darwin": ("libvulkan.1.dylib", "libvulkan.dylib", "libMoltenVK.dylib"),
}
_OTHERS = ("libvulkan.so.1", "libvulkan.so")
_FOLDERS = ("/opt/homebrew/lib", "/usr/local/lib")  # Homebrew's, where macOS does not look by itself
_ADVICE = {
    "win32": "it comes with the graphics driver of your GPU",
    "darwin": "brew install vulkan-loader molten-vk",
}


def load() -> Functions:
    """Return the loader's functions. Raises BackendError if there is no loader, or if it is too old."""
    for name in names():
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        return _functions(library, name)
    advice = _ADVICE.get(sys.platform, "install the graphics driver of your GPU (Debian: apt install libvulkan1)")
    raise BackendError(f"no Vulkan loader found: {advice}")


def names() -> Iterator[str]:
    """Yield where the loader may be, by preference."""
    usual = _NAMES.get(sys.platform, _OTHERS)
    yield from usual
    if sys.platform == "darwin":
        kit = os.environ.get("VULKAN_SDK")
        for folder in (*([f"{kit}/lib"] if kit else []), *_FOLDERS):
            yield from (f"{folder}/{name}" for name in usual)


def _functions(library: ctypes.CDLL, name: str) -> Functions:
    functions = Functions()
    quick = ctypes.PyDLL(name, handle=library._handle)
    for function_name in SIGNATURES.keys() - set(EXTENSIONS):
        try:
            function = getattr(quick if function_name.startswith(RECORDING) else library, function_name)
        except AttributeError:
            raise BackendError(f"the Vulkan loader {name} has no {function_name}; update it to 1.2 or later") from None
        function.restype, arguments = SIGNATURES[function_name]
        if function_name not in UNCONVERTED:
            function.argtypes = arguments
        setattr(functions, function_name, function)
    return functions


def extension_function(functions: Functions, instance: int, name: str) -> ctypes._CFunctionType | None:
    """Return a function that the loader does not export; None if no driver has it."""
    place = functions.vkGetInstanceProcAddr(instance, name.encode())
    result, arguments = SIGNATURES[name]
    return ctypes.CFUNCTYPE(result, *arguments)(place) if place else None
