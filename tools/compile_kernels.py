"""Compile the CPU backend's kernels for other machines: ``python -m tools.compile_kernels [TAG ...]``.

A TAG is a platform wheel's, such as ``manylinux2014_x86_64``; default: all. For each instruction set of the platform's
processors, a shared library and an index are written to ``build/kernels/TAG``, which ``tools/build_wheels.py`` adds to
a wheel.

Numba translates a kernel to LLVM IR once for all instruction sets that use it; LLVM compiles the IR to object files for
each set and system. A kernel that is identical for a set and its base (``Isa.base``) is only in the base's library.
Results are kept in ``build/objects``, so an interrupted run resumes. Zig's linker (``pip install ziglang``, or the path
in ZIG) links the objects on any machine.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import inspect
import json
import os
import pkgutil
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from pumice_cpu.compiler import function_of, source_of
from pumice_cpu.isa import BY_NAME, ENVIRONMENT, Isa, current
from pumice_cpu.sources import digest, symbol

ROOT = Path(__file__).resolve().parents[1]
OBJECTS = ROOT / "build" / "objects"
X86 = ("avx512bf16", "avx512vnni", "avx512", "avxvnni", "avx2", "plain")


@dataclass(frozen=True)
class Target:
    """A platform: LLVM's triple, Zig's target, the suffix of libraries, and the instruction sets to compile for."""

    triple: str
    zig: str
    suffix: str
    isas: tuple[str, ...]


TARGETS = {
    "manylinux2014_x86_64": Target("x86_64-unknown-linux-gnu", "x86_64-linux-gnu.2.17", ".so", X86),
    "manylinux2014_aarch64": Target("aarch64-unknown-linux-gnu", "aarch64-linux-gnu.2.17", ".so", ("neon", "plain")),
    "macosx_11_0_arm64": Target("arm64-apple-macosx11.0.0", "aarch64-macos.11.0", ".dylib", ("neon",)),
    "win_amd64": Target("x86_64-pc-windows-gnu", "x86_64-windows-gnu", ".dll", X86),
}


def kernel_names() -> list[str]:
    """Return the kernels in a wheel for the current instruction set; rarer ones are compiled where they are used."""
    from pumice_cpu import lower, packed, quantizer

    return [*runtime_names(), *_plain(), *lower.kernels(), *packed.kernels(), *quantizer.kernels()]


def runtime_names() -> list[str]:
    """Return the kernels that every program needs."""
    from pumice_cpu.runtime import KERNELS

    return list(KERNELS)


def _plain() -> Iterator[str]:
    """Yield the kernels that are plain functions."""
    import pumice_cpu.kernels as package

    for module in pkgutil.iter_modules(package.__path__):
        if module.name == "bf16" and not current().multiplies_bf16:
            continue
        for name, function in vars(importlib.import_module(f"pumice_cpu.kernels.{module.name}")).items():
            is_kernel = inspect.isfunction(function) and function.__module__ == f"pumice_cpu.kernels.{module.name}"
            if is_kernel and next(iter(inspect.signature(function).parameters), "") == "thread":
                yield f"{module.name}.{name}"


def write_objects(name: str, triples: Sequence[str]) -> bool:
    """Write missing object files of a kernel for the current instruction set.

    Returns False, and writes nothing, if they equal those of the set's base.
    """
    from pumice_cpu.codegen import object_file

    source, isa = _source(name), current()
    if is_of_base(source, isa):
        return False
    for triple in triples:
        path = _object(isa, triple, name)
        if not path.exists():
            _write(path, object_file(source, triple))
    return True


def is_of_base(source: str, isa: Isa) -> bool:
    """Return True if a kernel uses only features that the set's base has."""
    if not isa.base or re.search(
        r"@llvm\.(x86|aarch64)\.", source
    ):  # intrinsics of a processor family are never in shared code
        return False
    own, base = _definitions(isa), _definitions(BY_NAME[isa.base])
    return all(own[name] == base[name] for name in re.findall(r'@"?(pumice\.[\w.]+)', source))


@functools.cache
def _definitions(isa: Isa) -> dict[str, str]:
    from pumice_cpu.simd.define import definitions

    matches = re.finditer(r'^define .*?@"?(pumice\.[\w.]+).*?^}', definitions(isa), re.MULTILINE | re.DOTALL)
    return {match[1]: match[0] for match in matches}


def _source(name: str) -> str:
    """Return a kernel's LLVM IR."""
    path = _folder() / "sources" / f"{symbol(name)}.ll"
    if not path.exists():
        _write(path, source_of(name)[1].encode())
    return path.read_text()


def _folder() -> Path:
    return OBJECTS / digest()


def _object(isa: Isa, triple: str, name: str) -> Path:
    return _folder() / triple / isa.name / f"{symbol(name)}.o"


def _write(path: Path, content: bytes) -> None:
    """Write a file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(f".{os.getpid()}")
    unfinished.write_bytes(content)
    unfinished.replace(path)


def link(target: Target, names: Sequence[str], folder: Path) -> None:
    """Link the library of the current instruction set, and write its index of kernel parameters."""
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / f"{current().name}{target.suffix}"
    with tempfile.TemporaryDirectory() as scratch:
        response = Path(scratch, "objects")
        response.write_text("\n".join(str(_object(current(), target.triple, name)) for name in names))
        zig = [os.environ["ZIG"]] if "ZIG" in os.environ else [sys.executable, "-m", "ziglang"]
        command = [*zig, "cc", "-target", target.zig, "-shared", "-s", "-o", str(library), f"@{response}"]
        subprocess.run(command, check=True)
    index = {name: _parameters(name) for name in sorted(names)}
    (folder / f"{current().name}.json").write_text(json.dumps({"sources": digest(), "kernels": index}))


def _parameters(name: str) -> list[str]:
    names = list(inspect.signature(function_of(name)).parameters)
    return names[2:] if names[0] == "thread" else names


def compile_set(tags: Sequence[str], names: Sequence[str], folder: Path, jobs: int) -> None:
    """Build the libraries of the current instruction set for each platform that supports it."""
    from tqdm import tqdm

    targets = {tag: TARGETS[tag] for tag in tags if current().name in TARGETS[tag].isas}
    triples = [target.triple for target in targets.values()]
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        done = pool.map(write_objects, names, [triples] * len(names))
        is_own = list(tqdm(done, desc=current().name, total=len(names), disable=None))
    own = [name for name, is_own_kernel in zip(names, is_own, strict=True) if is_own_kernel]
    for tag, target in targets.items() if own else ():
        link(target, own, folder / tag)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tags", nargs="*", choices=[[], *TARGETS], metavar="TAG", help=f"of {', '.join(TARGETS)}")
    parser.add_argument("--isa", help="compile only this instruction set and its base")
    parser.add_argument("--only", default="", metavar="TEXT", help="compile only kernels whose names contain TEXT")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="number of processes (default: one per core)"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "kernels")
    arguments = parser.parse_args()
    tags = arguments.tags or list(TARGETS)
    if arguments.isa and os.environ.get(ENVIRONMENT) == arguments.isa:
        names = [name for name in kernel_names() if arguments.only in name]
        compile_set(tags, list(dict.fromkeys([*runtime_names(), *names])), arguments.out, arguments.jobs)
        return 0
    isas = [arguments.isa] if arguments.isa else [isa for tag in tags for isa in TARGETS[tag].isas]
    for isa in dict.fromkeys(
        [*isas, *filter(None, (BY_NAME[isa].base for isa in isas))]
    ):  # each set has different kernels
        command = [sys.executable, "-m", "tools.compile_kernels", *tags, "--isa", isa, "--only", arguments.only]
        command += ["--jobs", str(arguments.jobs), "--out", str(arguments.out)]
        done = subprocess.run(command, env={**os.environ, ENVIRONMENT: isa}, cwd=ROOT)
        if done.returncode:
            return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
