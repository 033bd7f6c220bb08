"""Precompiled kernels in platform wheels: a shared library and an index of its kernels for each instruction set.

A kernel that is identical for a set and its base is only in the base's library. ``tools/build_wheels.py`` builds such
wheels. Kernels that are in no library are compiled when first used.
"""

from __future__ import annotations

import ctypes
import functools
import json
import logging
import sys
from pathlib import Path
from typing import Any, NamedTuple

from pumice_cpu.isa import BY_NAME, current
from pumice_cpu.sources import digest, symbol

FOLDER = Path(__file__).parent / "precompiled"
SUFFIXES = {"linux": ".so", "darwin": ".dylib", "win32": ".dll"}

log = logging.getLogger("pumice")


class PrecompiledKernel(NamedTuple):
    """A kernel in memory: the names of its parameters, in order, and its address."""

    parameters: list[str]
    address: int


def find(name: str) -> PrecompiledKernel | None:
    """Return the kernel for the current instruction set, or None if the package does not contain it."""
    isa = current()
    library, index = _library(FOLDER, isa.name)
    while name not in index and isa.base:
        isa = BY_NAME[isa.base]
        library, index = _library(FOLDER, isa.name)
    if name not in index:
        return None
    address = ctypes.cast(getattr(library, symbol(name)), ctypes.c_void_p).value
    assert address is not None
    return PrecompiledKernel(index[name], address)


@functools.cache
def _library(folder: Path, isa: str) -> tuple[Any, dict[str, list[str]]]:
    """Return the library and its kernels' parameters; None and {} if it is missing or from other sources."""
    try:
        content = json.loads((folder / f"{isa}.json").read_text())
    except FileNotFoundError:
        return None, {}
    path = folder / f"{isa}{SUFFIXES.get(sys.platform, '.so')}"
    if content["sources"] != digest():
        log.warning("cpu: %s was built from other sources; compiling kernels instead", path)
        return None, {}
    try:
        return ctypes.CDLL(str(path)), content["kernels"]
    except OSError as error:
        log.warning("cpu: %s cannot be loaded (%s); compiling kernels instead", path, error)
        return None, {}
