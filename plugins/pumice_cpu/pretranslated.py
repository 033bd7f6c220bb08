"""LLVM IR of common kernels, in every package: Numba's translation is four fifths of what a first start waits for.

``tools/translate_kernels.py`` writes the file. IR of other sources is ignored.
"""

from __future__ import annotations

import functools
import json
import lzma
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, TypedDict

from pumice_cpu.sources import digest

FILE = Path(__file__).parent / "pretranslated.json.xz"


class TranslatedKernel(NamedTuple):
    """A kernel's parameters, in order, and its LLVM IR, which suits every instruction set."""

    parameters: list[str]
    source: str


class _Content(TypedDict):
    sources: str
    kernels: dict[str, tuple[list[str], str]]
    definitions: dict[str, str]  # by instruction set: the functions that kernels refer to


def find(name: str) -> TranslatedKernel | None:
    """Return the kernel, or None if the package has no IR of it."""
    entry = _content(FILE)["kernels"].get(name)
    return None if entry is None else TranslatedKernel(*entry)


def definitions(isa: str) -> str | None:
    """Return the IR of the functions of an instruction set that kernels refer to, or None if the package has none."""
    return _content(FILE)["definitions"].get(isa)


def discard() -> None:
    """Find nothing from now on in this process."""
    content = _content(FILE)
    content["kernels"].clear()
    content["definitions"].clear()


def write(kernels: Mapping[str, tuple[list[str], str]], definitions: Mapping[str, str]) -> None:
    """Write the IR of the current sources."""
    text = json.dumps({"sources": digest(), "kernels": kernels, "definitions": definitions}, indent=0)
    FILE.write_bytes(lzma.compress(text.encode(), preset=lzma.PRESET_EXTREME))


@functools.cache
def _content(path: Path) -> _Content:
    """Return the content, without entries if the file is missing, damaged or from other sources."""
    try:
        content: _Content = json.loads(lzma.decompress(path.read_bytes()))
        if content["sources"] == digest():
            return content
    except (OSError, ValueError, lzma.LZMAError):
        pass
    return {"sources": "", "kernels": {}, "definitions": {}}
