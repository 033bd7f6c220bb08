"""Compile the CPU backend's kernels for other machines: ``python -m tools.compile_kernels TAG``.

TAG is that of a platform wheel, ``manylinux2014_x86_64`` for example. For each instruction set of its processor a
shared library and an index are written to ``build/kernels/TAG``; ``tools/build_wheels.py`` puts them into a wheel.
LLVM emits object files for any target, and Zig's linker (``pip install ziglang``, or another's path in ZIG) makes
libraries of them, on any machine.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import itertools
import json
import os
import pkgutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
X86 = ("avx512bf16", "avx512vnni", "avx512", "avxvnni", "avx2", "plain")


@dataclass(frozen=True)
class Target:
    """A platform: LLVM's name, Zig's name, what libraries end with, and the instruction sets to compile for."""

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
    """The kernels of the current instruction set that come with a wheel; what is rarer is compiled where it runs."""
    from pumice.graph.ops.route import GATES
    from pumice.plugin import ELEMENTWISE, KV_TYPES
    from pumice_cpu.formats import BY_NAME
    from pumice_cpu.isa import current
    from pumice_cpu.lower.experts import FLOATS
    from pumice_cpu.lower.linear_float import TYPES

    tokens = str(current().tokens)
    of_two = [name for name, each in ELEMENTWISE.items() if len(each.operands) == 2]
    rows = sorted({str(min(4, current().tokens)), tokens})
    scores = ("plain", "capped", "plain_biased")
    made = {
        **{each: [BY_NAME] for each in ("linear.matvec", "experts.matvec", "pack.pack")},
        **{each: [BY_NAME, [tokens]] for each in ("linear.matmul", "experts.matmul")},
        **{each: [TYPES.values()] for each in ("linear_float.matvec", "linear_float.matmul")},
        "experts.matvec_float": [FLOATS.values()],
        "experts.matmul_float": [FLOATS.values(), [str(max(1, current().tokens // 2))]],
        "elementwise.unary": [[name for name in ELEMENTWISE if name not in of_two]],
        **{each: [of_two] for each in ("elementwise.binary", "elementwise.broadcast")},
        "rope.rotate": [("neox", "normal")],
        **{each: [GATES] for each in ("route.choose", "route.weigh")},
        "kv_cache.store": [KV_TYPES],
        "attention.attend": [KV_TYPES, rows, ["tiles"], scores, ["causal"]],
    }
    names = [":".join((factory, *each)) for factory, sets in made.items() for each in itertools.product(*sets)]
    return [*_plain(), *names]


def _plain() -> Iterator[str]:
    """Kernels that no factory makes."""
    import pumice_cpu.kernels as package

    yield from ("step.run", "step.wait", "step.start")
    for module in pkgutil.iter_modules(package.__path__):
        for name, function in vars(importlib.import_module(f"pumice_cpu.kernels.{module.name}")).items():
            here = inspect.isfunction(function) and function.__module__ == f"pumice_cpu.kernels.{module.name}"
            if here and next(iter(inspect.signature(function).parameters), "") == "thread":
                yield f"{module.name}.{name}"


def compile_library(target: Target, folder: Path, only: str) -> None:
    """The library and the index of the current instruction set."""
    from tqdm import tqdm

    from pumice_cpu.compiler import compile_all
    from pumice_cpu.isa import current
    from pumice_cpu.sources import digest, symbol

    names = [name for name in kernel_names() if only in name or name.startswith("step.")]
    index: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        objects = []
        for name, entry in tqdm(compile_all(names), desc=current().name, total=len(names), disable=None):
            objects.append(Path(scratch, f"{symbol(name)}.o"))
            objects[-1].write_bytes(entry.code)
            index[name] = entry.parameters
        library = folder / f"{current().name}{target.suffix}"
        response = Path(scratch, "objects")
        response.write_text("\n".join(map(str, objects)))
        zig = [os.environ["ZIG"]] if "ZIG" in os.environ else [sys.executable, "-m", "ziglang"]
        command = [*zig, "cc", "-target", target.zig, "-shared", "-s", "-o", str(library), f"@{response}"]
        subprocess.run(command, check=True)
    content = {"sources": digest(), "kernels": dict(sorted(index.items()))}
    (folder / f"{current().name}.json").write_text(json.dumps(content))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tag", choices=TARGETS)
    parser.add_argument("--isa", help="this instruction set alone")
    parser.add_argument("--only", default="", metavar="TEXT", help="kernels that have it in their names")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "kernels")
    arguments = parser.parse_args()
    target, folder = TARGETS[arguments.tag], arguments.out / arguments.tag
    folder.mkdir(parents=True, exist_ok=True)
    if arguments.isa and os.environ.get("PUMICE_TARGET") == target.triple:
        compile_library(target, folder, arguments.only)
        return 0
    for isa in [arguments.isa] if arguments.isa else target.isas:  # each in a process: kernels depend on the set
        environment = {**os.environ, "PUMICE_SIMD": isa, "PUMICE_TARGET": target.triple}
        command = [sys.executable, "-m", "tools.compile_kernels", arguments.tag, "--isa", isa]
        done = subprocess.run(
            [*command, "--only", arguments.only, "--out", str(arguments.out)], env=environment, cwd=ROOT
        )
        if done.returncode:
            return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
