"""Compile GLSL to SPIR-V: ``python tools/compile_shaders.py [DIRECTORY ...]``.

Every directory (default: shaders/ and that of the tests) has a table ``variants.yaml``, and gets a folder ``spv`` with
a file for each variant, ``manifest.json``: the compiler, and a hash of all that each variant was made from, and
``interfaces.json``: name, type and offset of the push constants of each entry of the table.
The compiler is ``glslc`` of shaderc, found on PATH or named by GLSLC; KHR cooperative matrices need 2024.0 or later.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from pumice.plugin import ELEMENTWISE, KV_TYPES
from pumice_vulkan.flags import product_defines
from pumice_vulkan.formats import FORMATS
from pumice_vulkan.interface import push_constants
from pumice_vulkan.kv_cache import cache_defines
from pumice_vulkan.shaders import INTERFACES

ROOT = Path(__file__).resolve().parents[1]
Macros = dict[str, str | int]
DIRECTORIES = [ROOT / "shaders", ROOT / "tests" / "plugins" / "vulkan" / "shaders"]


@dataclass(frozen=True)
class Variant:
    """One compilation of a source."""

    name: str
    entry: str  # of the table
    source: str
    target: str = "vulkan1.1"
    defines: Macros = field(default_factory=dict)

    def command(self, compiler: str, directory: Path, *, optimize: bool = True) -> list[str]:
        """Without the target file. What is optimized has no names left."""
        defines = [f"-D{name}={value}" for name, value in self.defines.items()]
        options = ["-O" if optimize else "-O0", f"--target-env={self.target}", "-I", str(directory), *defines]
        return [compiler, *options, str(directory / self.source), "-o"]

    def digest(self, directory: Path) -> str:
        """A hash of the options and of the source with all it includes."""
        found = hashlib.sha256(json.dumps([self.target, self.defines], sort_keys=True).encode())
        for path in sources(directory / self.source):
            found.update(path.read_bytes())
        return found.hexdigest()


def variants(directory: Path) -> list[Variant]:
    """The table of a directory. An entry with ``each`` is a variant for each name of that set, ``ENTRY.NAME``."""
    table = yaml.safe_load((directory / "variants.yaml").read_text())
    sets = _sets()
    found = []
    for entry, fields in table.items():
        defines = {
            **(_product() if fields.pop("product", False) else {}),
            **(_cases() if fields.pop("functions", False) else {}),
            **fields.pop("defines", {}),
        }
        if "each" in fields:
            names = sets[fields.pop("each")]
            found += [Variant(f"{entry}.{name}", entry, defines={**defines, **names[name]}, **fields) for name in names]
        else:
            found.append(Variant(entry, entry, defines=defines, **fields))
    return found


def _sets() -> dict[str, dict[str, Macros]]:
    """What ``each`` may name, and the macros of each name of a set."""
    formats = {each.name: each.defines() for each in FORMATS.values()}
    caches = {name: cache_defines(name) for name in KV_TYPES}
    return {
        "format": formats,
        "quantized format": {each.name: each.defines() for each in FORMATS.values() if not each.dense},
        "half format": {name: macros for name, macros in formats.items() if name != "f32"},
        "cache": caches,
        "half cache": {name: macros for name, macros in caches.items() if name != "f32"},
        "unary function": _functions(1),
        "binary function": _functions(2),
    }


#: How a formula is written in GLSL.
GLSL = {
    "add": "({} + {})".format,
    "sub": "({} - {})".format,
    "mul": "({} * {})".format,
    "div": "({} / {})".format,
    "maximum": "max({}, {})".format,
    "minimum": "min({}, {})".format,
    "exp": "exp({})".format,
    "sqrt": "sqrt({})".format,
    "tanh": "stable_tanh({})".format,
    "softplus": "softplus({})".format,
}


def _formula(name: str, *operands: str) -> str:
    """An operation as an expression; its attributes are p and q."""
    operation = ELEMENTWISE[name]
    assert operation.formula is not None
    attributes = zip(operation.attributes, ("p", "q"), strict=False)
    return operation.formula.fold(
        {**dict(zip(operation.operands, operands, strict=True)), **dict(attributes)}, repr, GLSL
    )


def _functions(n_operands: int) -> dict[str, Macros]:
    """The operations element by element on so many operands, each as the macro FORMULA."""
    named = [name for name, each in ELEMENTWISE.items() if len(each.operands) == n_operands]
    return {name: {"FORMULA": _formula(name, *("a", "b")[:n_operands])} for name in named}


def _cases() -> Macros:
    """The operations element by element as cases of their numbers."""
    formulas = [_formula(name, *("a", "b")[: len(each.operands)]) for name, each in ELEMENTWISE.items()]
    return {"CASES": " ".join(f"case {number}u: return {formula};" for number, formula in enumerate(formulas))}


def _product() -> Macros:
    """The macros of products."""
    return {**product_defines(), "GATE": _formula("silu_mul", "values[0]", "values[1]")}


def manifest(directory: Path) -> dict[str, dict[str, str]]:
    """What was compiled last: ``compiler`` -> ``version``, ``digests`` -> name -> hash."""
    path = directory / "spv" / "manifest.json"
    return json.loads(path.read_text()) if path.exists() else {"compiler": {}, "digests": {}}


def interfaces(directory: Path) -> dict[str, list[list[str | int]]]:
    """The push constants found last: entry of the table -> ``[name, type, offset]`` of each."""
    path = directory / "spv" / INTERFACES
    return json.loads(path.read_text()) if path.exists() else {}


def find_compiler() -> str | None:
    return os.environ.get("GLSLC") or shutil.which("glslc")


def version(compiler: str) -> str:
    """The compiler's version, for example "shaderc 2025.2-1"."""
    done = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[0]


def compile_variant(compiler: str, directory: Path, variant: Variant, target: Path) -> None:
    subprocess.run([*variant.command(compiler, directory), str(target)], check=True)


def find_interface(compiler: str, directory: Path, variant: Variant) -> list[list[str | int]]:
    """The push constants of a variant, from a compilation that keeps their names."""
    command = [*variant.command(compiler, directory, optimize=False), "-"]
    spirv = subprocess.run(command, capture_output=True, check=True).stdout
    return [list(each.row) for each in push_constants(spirv)]


def compile_directory(compiler: str, directory: Path) -> int:
    """Compile what changed, remove what is no variant any more; how many files were compiled."""
    spv = directory / "spv"
    spv.mkdir(exist_ok=True)
    last, current = manifest(directory), {"version": version(compiler)}
    known = last["digests"] if last["compiler"] == current else {}
    digests = {variant.name: variant.digest(directory) for variant in variants(directory)}
    stale = [
        variant
        for variant in variants(directory)
        if known.get(variant.name) != digests[variant.name] or not (spv / f"{variant.name}.spv").exists()
    ]
    for variant in stale:
        compile_variant(compiler, directory, variant, spv / f"{variant.name}.spv")
    for path in spv.glob("*.spv"):
        if path.stem not in digests:
            path.unlink()
    found, changed = interfaces(directory), {variant.entry for variant in stale}
    entries = {variant.entry: variant for variant in variants(directory)}
    found = {
        entry: find_interface(compiler, directory, variant) if entry in changed or entry not in found else found[entry]
        for entry, variant in sorted(entries.items())
    }
    lines = ",\n".join(f" {json.dumps(entry)}: {json.dumps(rows)}" for entry, rows in found.items())
    (spv / INTERFACES).write_text(f"{{\n{lines}\n}}\n")
    content = {"compiler": current, "digests": dict(sorted(digests.items()))}
    (spv / "manifest.json").write_text(json.dumps(content, indent=1) + "\n")
    return len(stale)


def sources(path: Path) -> list[Path]:
    """A source and what it includes, each once."""
    found = [path]
    for item in found:
        for name in re.findall(r'^\s*#include\s+"([^"]+)"', item.read_text(), re.MULTILINE):
            included = item.parent / name
            if included not in found:
                found.append(included)
    return found


def main() -> int:
    compiler = find_compiler()
    if compiler is None:
        print("error: no glslc: install it (Debian: apt install glslc) or name it with GLSLC=path", file=sys.stderr)
        return 1
    for directory in [Path(name) for name in sys.argv[1:]] or DIRECTORIES:
        try:
            count = compile_directory(compiler, directory)
        except subprocess.CalledProcessError:
            return 1  # the compiler has said why
        print(f"{directory}: {count} compiled, {len(variants(directory)) - count} up to date")
    return 0


if __name__ == "__main__":
    sys.exit(main())
