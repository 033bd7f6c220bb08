"""Kernels by name: found in the cache or compiled, then called by address."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pumice_cpu import cache
from pumice_cpu.codegen import compile_function, compile_kernel, parameters, target_machine
from pumice_cpu.isa import current

_lock = threading.Lock()
_loaded: dict[str, Kernel] = {}


@dataclass(frozen=True)
class Kernel:
    """Machine code in memory. ``parameters`` are the names of its int64 arguments, in order."""

    name: str
    parameters: tuple[str, ...]
    address: int


def kernel(name: str) -> Kernel:
    """The kernel of this name. Its address goes into an operation table.

    ``norms.rms_norm`` is the function ``rms_norm`` of ``pumice_cpu.kernels.norms``;
    ``linear.matmul:q4_0:8`` is what ``matmul("q4_0", "8")`` of ``pumice_cpu.kernels.linear`` returns.
    """
    return load_kernels([name])[name]


def load_kernels(names: Iterable[str]) -> dict[str, Kernel]:
    """Several kernels at once; says so on a terminal if some must be compiled first."""
    names = list(dict.fromkeys(names))
    with _lock:
        missing = [name for name in names if name not in _loaded]
        entries = {name: cache.load(name) for name in missing}
        to_compile = [name for name in missing if entries[name] is None]
        for name in _progress(to_compile):
            entries[name] = _compile(name)
        _link({name: entry for name, entry in entries.items() if entry is not None})
        return {name: _loaded[name] for name in names}


def function_of(name: str) -> Callable[..., Any]:
    """The Python function that a kernel's name stands for."""
    path, *arguments = name.split(":")
    module, attribute = path.rsplit(".", 1)
    found: Callable[..., Any] = getattr(importlib.import_module(f"pumice_cpu.kernels.{module}"), attribute)
    return found(*arguments) if arguments else found


def _compile(name: str) -> cache.Entry:
    function = function_of(name)
    names = parameters(function)
    if names[0] == "thread":
        entry = cache.Entry(names[2:], compile_kernel(function, _symbol(name)))
    else:
        entry = cache.Entry(names, compile_function(function, _symbol(name)))
    cache.save(name, entry)
    return entry


def _link(entries: dict[str, cache.Entry]) -> None:
    """Bring object files into memory. The engines are kept for the life of the process, as the code is."""
    if not entries:
        return
    import llvmlite.binding as llvm

    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target_machine(current()))
    for entry in entries.values():
        engine.add_object_file(llvm.ObjectFileRef.from_data(entry.code))
    engine.finalize_object()
    _engines.append(engine)
    for name, entry in entries.items():
        _loaded[name] = Kernel(name, tuple(entry.parameters), engine.get_function_address(_symbol(name)))


_engines: list[Any] = []


def _symbol(name: str) -> str:
    return "pumice_" + "".join(c if c.isalnum() else "_" for c in name)


def _progress(names: list[str]) -> Iterable[str]:
    from tqdm import tqdm

    quiet = not names or not sys.stderr.isatty()
    return tqdm(names, desc="compiling kernels (kept for next time)", disable=quiet, leave=False)
