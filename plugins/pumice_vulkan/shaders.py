"""The compiled shaders: next to this module in a wheel, in ``shaders/spv`` in a checkout."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np

from pumice.plugin import BackendError
from pumice_vulkan.interface import Interface, Parameter

PACKAGE = Path(__file__).parent
FOLDERS = [PACKAGE / "spv", PACKAGE.parents[1] / "shaders" / "spv"]
INTERFACES = "interfaces.json"


@functools.cache
def shader(name: str) -> bytes:
    """Return the SPIR-V of a variant in ``shaders/variants.yaml``. Raises BackendError if it is missing."""
    for folder in FOLDERS:
        path = folder / f"{name}.spv"
        if path.exists():
            return path.read_bytes()
    raise _missing(name)


@functools.cache
def rolled(name: str) -> bytes:
    """Return a variant's SPIR-V that asks the driver not to unroll loops: DontUnroll as control of each OpLoopMerge."""
    header, loop_merge, length, dont_unroll = 5, 246, 4, 2  # words and numbers of the SPIR-V specification
    words, position = np.frombuffer(shader(name), np.uint32).copy(), header
    while position < len(words):
        count, opcode = divmod(int(words[position]), 1 << 16)
        if (count, opcode) == (length, loop_merge):
            words[position + 3] = dont_unroll
        position += count
    return words.tobytes()


@functools.cache
def interface(name: str) -> Interface:
    """Return a variant's push constants: those of its entry in ``shaders/variants.yaml``. Raises BackendError."""
    for folder in FOLDERS:
        path = folder / INTERFACES
        if path.exists():
            entries = _entries(path)
            rows = entries.get(name, entries.get(name.rpartition(".")[0]))
            if rows is not None:
                return Interface(name, tuple(Parameter.parse(*row) for row in rows))
    raise _missing(name)


@functools.cache
def _entries(path: Path) -> dict[str, Any]:
    entries: dict[str, Any] = json.loads(path.read_text())
    return entries


def _missing(name: str) -> BackendError:
    return BackendError(f"vulkan: shader {name!r} is missing; reinstall pumice, or run tools/compile_shaders.py")
