"""Kernels that came with the package: for each instruction set a shared library, and an index of what is in it.

A kernel that is the same for a set and its base is in the library of the base alone. Only platform wheels have them
(``tools/build_wheels.py``). Kernels that are in no library are compiled as ever.
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


class Found(NamedTuple):
    """A kernel in memory: its parameters in order, and where it is."""

    parameters: list[str]
    address: int


def find(name: str) -> Found | None:
    """The kernel for the current instruction set, if the package has it."""
    isa = current()
    library, index = _library(FOLDER, isa.name)
    while name not in index and isa.base:
        isa = BY_NAME[isa.base]
        library, index = _library(FOLDER, isa.name)
    if name not in index:
        return None
    address = ctypes.cast(getattr(library, symbol(name)), ctypes.c_void_p).value
    assert address is not None
    return Found(index[name], address)


@functools.cache
def _library(folder: Path, isa: str) -> tuple[Any, dict[str, list[str]]]:
    """The library and the parameters of its kernels; nothing if it is not there or was made from other sources."""
    try:
        content = json.loads((folder / f"{isa}.json").read_text())
    except FileNotFoundError:
        return None, {}
    path = folder / f"{isa}{SUFFIXES.get(sys.platform, '.so')}"
    if content["sources"] != digest():
        log.warning("cpu: %s was made from other sources; kernels are compiled", path)
        return None, {}
    try:
        return ctypes.CDLL(str(path)), content["kernels"]
    except OSError as error:
        log.warning("cpu: %s cannot be loaded (%s); kernels are compiled", path, error)
        return None, {}
