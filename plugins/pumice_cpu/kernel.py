"""Kernels by name: loaded from the package or the cache, or compiled, and then called by address."""

from __future__ import annotations

import functools
import importlib.util
import logging
import sys
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pumice.plugin import BackendError
from pumice.plugin.unstable import install_command
from pumice_cpu import cache, precompiled
from pumice_cpu.codegen import target_machine
from pumice_cpu.compiler import compile_all
from pumice_cpu.isa import current
from pumice_cpu.sources import symbol

MANY = 16  # kernels, whose compilation takes seconds

logger = logging.getLogger("pumice")

_lock = threading.Lock()
_loaded: dict[str, Kernel] = {}


@dataclass(frozen=True)
class Kernel:
    """Machine code in memory. ``parameters`` are the names of its int64 arguments, in order."""

    name: str
    parameters: tuple[str, ...]
    address: int


def load_kernels(names: Iterable[str]) -> dict[str, Kernel]:
    """Load kernels by their names (``compiler.function_of``), compiling the missing ones with a progress bar.

    Raises:
        BackendError: if a kernel is not in the package and no working compiler is installed.
    """
    names = list(dict.fromkeys(names))
    with _lock:
        for name in names:
            packaged = None if name in _loaded else precompiled.find(name)
            if packaged is not None:
                _loaded[name] = Kernel(name, tuple(packaged.parameters), packaged.address)
        missing = [name for name in names if name not in _loaded]
        if missing and importlib.util.find_spec("numba") is None:
            raise BackendError(
                f"cpu: the kernel {missing[0]} did not come with this package for {current().name}, and there is no "
                f"compiler for it: {install_command('compiler')}"
            )
        try:
            _compile(missing)
        except ImportError as error:
            raise BackendError(
                f"cpu: the kernel {missing[0]} did not come with this package for {current().name}, and its compiler, "
                f"Numba, cannot be imported ({error}): install Numba again, or another version"
            ) from error
        return {name: _loaded[name] for name in names}


def _compile(names: list[str]) -> None:
    """Load kernels from the cache; compile and cache the missing ones."""
    entries = {name: cache.load(name) for name in names}
    for name, entry in _progress([name for name in names if entries[name] is None]):
        cache.save(name, entry)
        entries[name] = entry
    _link({name: entry for name, entry in entries.items() if entry is not None})


def _link(entries: dict[str, cache.CompiledKernel]) -> None:
    """Link object files into memory. The engines live as long as the process, as the code does.

    All files are linked at once, because llvmlite's memory manager then places code and its constants together. If they
    were mapped more than 2 GiB apart, as happens once gigabytes are mapped, the process would crash.
    """
    if not entries:
        return
    import llvmlite.binding as llvm

    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target_machine(current()), use_lmm=True)
    for entry in entries.values():
        engine.add_object_file(llvm.ObjectFileRef.from_data(entry.code))
    engine.finalize_object()
    _engines.append(engine)
    for name, entry in entries.items():
        _loaded[name] = Kernel(name, tuple(entry.parameters), engine.get_function_address(symbol(name)))


_engines: list[Any] = []


@functools.cache
def _tell_once() -> None:
    """Say, once a process, why this load takes longer than later ones."""
    logger.warning("cpu: compiling kernels for this processor, once; later starts find them in the cache")


def _progress(names: list[str]) -> Iterable[tuple[str, cache.CompiledKernel]]:
    is_seen = sys.stderr.isatty() or "ipykernel" in sys.modules  # in a notebook the bar appears under the cell
    if len(names) >= MANY and not is_seen:
        _tell_once()
    if not names or not is_seen:
        return compile_all(names)
    from tqdm import tqdm

    return tqdm(compile_all(names), desc="compiling kernels (kept for next time)", total=len(names), leave=False)
