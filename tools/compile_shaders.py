"""Compile GLSL to SPIR-V: ``python tools/compile_shaders.py [DIRECTORY ...]``.

Every directory (default: shaders/ and that of the tests) has a table ``variants.yaml``. Its folder ``spv`` gets a file
per variant; ``manifest.json``, with the compiler and a hash of all inputs of each variant; and ``interfaces.json``,
with name, type and offset of the push constants of each entry of the table. The compiler is shaderc's ``glslc``, on
PATH or named by GLSLC; KHR cooperative matrices require 2024.0 or later. Files that sources include and that do not
exist are those of tools/token_products.py.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from pumice.plugin.unstable import ELEMENTWISE, KV_TYPES
from pumice_vulkan.flags import product_defines
from pumice_vulkan.formats import BY_NAME
from pumice_vulkan.interface import push_constants
from pumice_vulkan.kv_cache import cache_defines
from pumice_vulkan.persistent.division import SEVERAL
from pumice_vulkan.persistent.families import FAMILIES
from pumice_vulkan.shaders import INTERFACES

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from tools.token_products import texts  # noqa: E402

Macros = dict[str, str | int]
DIRECTORIES = [ROOT / "shaders", ROOT / "tests" / "plugins" / "vulkan" / "shaders"]


@dataclass(frozen=True)
class Variant:
    """One compilation of a source."""

    name: str
    entry: str  # in the table
    source: str
    target: str = "vulkan1.1"
    defines: Macros = field(default_factory=dict)
    optimize: bool = True

    def command(self, compiler: str, directory: Path, *, names: bool = False) -> list[str]:
        """Return the command without the target file. Optimized code has no names."""
        defines = [f"-D{name}={value}" for name, value in self.defines.items()]
        options = [
            "-O" if self.optimize and not names else "-O0",
            f"--target-env={self.target}",
            *("-I", str(directory)),
            *("-I", generated().name),
            *defines,
        ]
        return [compiler, *options, str(directory / self.source), "-o"]

    def digest(self, directory: Path) -> str:
        """Return a hash of the options and of the source with all its includes."""
        digest = hashlib.sha256(
            json.dumps([self.target, self.defines, self.optimize][: 2 + (not self.optimize)], sort_keys=True).encode()
        )
        for path in sources(directory / self.source):
            digest.update(path.read_bytes())
        return digest.hexdigest()


def variants(directory: Path) -> list[Variant]:
    """Return the table of a directory. An entry with ``each`` gives a variant ``ENTRY.NAME`` per name of that set."""
    table = yaml.safe_load((directory / "variants.yaml").read_text())
    sets = _sets()
    entries = []
    for entry, fields in table.items():
        defines = {
            **(_product() if fields.pop("product", False) else {}),
            **(_cases() if fields.pop("functions", False) else {}),
            **fields.pop("defines", {}),
        }
        if "each" in fields:
            names = sets[fields.pop("each")]
            entries += [
                Variant(f"{entry}.{name}", entry, defines={**defines, **names[name]}, **fields) for name in names
            ]
        else:
            entries.append(Variant(entry, entry, defines=defines, **fields))
    return entries


def _sets() -> dict[str, dict[str, Macros]]:
    """Return the sets for ``each``, with the macros of each name of a set."""
    formats = {name: format.defines() for name, format in BY_NAME.items()}
    caches = {name: cache_defines(name) for name in KV_TYPES}
    decoders: dict[str, Macros] = {name: {name: 1, **shape.macros()} for name, shape in FAMILIES.items()}
    return {
        "format": formats,
        "quantized format": {name: macros for name, macros in formats.items() if not BY_NAME[name].dense},
        "repacked format": {name: macros for name, macros in formats.items() if BY_NAME[name].for_lanes},
        "half format": {name: macros for name, macros in formats.items() if name != "f32"},
        "cache": caches,
        "half cache": {name: macros for name, macros in caches.items() if name != "f32"},
        "decoder": decoders,
        "dense decoder of rows": {name: decoders[name] for name in SEVERAL},
        "unary function": _functions(1),
        "binary function": _functions(2),
    }


#: Operations of formulas in GLSL.
GLSL = {
    "add": "({} + {})".format,
    "sub": "({} - {})".format,
    "mul": "({} * {})".format,
    "div": "({} / {})".format,
    "maximum": "max({}, {})".format,
    "minimum": "min({}, {})".format,
    "exp": "exp({})".format,
    "sqrt": "sqrt({})".format,
    "sin": "wide_sin({})".format,
    "tanh": "stable_tanh({})".format,
    "softplus": "softplus({})".format,
}


def _formula(name: str, *operands: str) -> str:
    """Return an operation as a GLSL expression; its attributes are p and q."""
    operation = ELEMENTWISE[name]
    assert operation.formula is not None
    attributes = zip(operation.attributes, ("p", "q"), strict=False)
    return operation.formula.fold(
        {**dict(zip(operation.operands, operands, strict=True)), **dict(attributes)}, repr, GLSL
    )


def _functions(n_operands: int) -> dict[str, Macros]:
    """Return the element-wise operations with ``n_operands``, each as the macro FORMULA."""
    named = [name for name, operation in ELEMENTWISE.items() if len(operation.operands) == n_operands]
    return {name: {"FORMULA": _formula(name, *("a", "b")[:n_operands])} for name in named}


def _cases() -> Macros:
    """Return the element-wise operations as cases of a switch over their numbers."""
    formulas = [_formula(name, *("a", "b")[: len(operation.operands)]) for name, operation in ELEMENTWISE.items()]
    return {"CASES": " ".join(f"case {number}u: return {formula};" for number, formula in enumerate(formulas))}


def _product() -> Macros:
    """Return the macros of products."""
    silu, gelu = (_formula(name, "values[0]", "values[1]") for name in ("silu_mul", "gelu_mul"))
    return {**product_defines(), "GATE": f"((FLAGS & GELU) != 0 ? {gelu} : {silu})"}


def manifest(directory: Path) -> dict[str, dict[str, str]]:
    """Return the latest manifest: ``compiler`` -> ``version``, ``digests`` -> name -> hash."""
    path = directory / "spv" / "manifest.json"
    return json.loads(path.read_text()) if path.exists() else {"compiler": {}, "digests": {}}


def interfaces(directory: Path) -> dict[str, list[list[str | int]]]:
    """Return the latest push constants: entry of the table -> ``[name, type, offset]`` of each."""
    path = directory / "spv" / INTERFACES
    return json.loads(path.read_text()) if path.exists() else {}


def find_compiler() -> str | None:
    return os.environ.get("GLSLC") or shutil.which("glslc")


def version(compiler: str) -> str:
    """Return the compiler's version, such as "shaderc 2025.2-1"."""
    done = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[0]


def compile_variant(compiler: str, directory: Path, variant: Variant, target: Path) -> None:
    subprocess.run([*variant.command(compiler, directory), str(target)], check=True)


def find_interface(compiler: str, directory: Path, variant: Variant) -> list[list[str | int]]:
    """Return the push constants of a variant, from a compilation that keeps their names."""
    command = [*variant.command(compiler, directory, names=True), "-"]
    spirv = subprocess.run(command, capture_output=True, check=True).stdout
    return [list(constant.row) for constant in push_constants(spirv)]


def compile_directory(compiler: str, directory: Path) -> int:
    """Compile changed variants, remove obsolete ones, and return the number of compiled files."""
    spv = directory / "spv"
    spv.mkdir(exist_ok=True)
    last, current = manifest(directory), {"version": version(compiler)}
    digests_before = last["digests"] if last["compiler"] == current else {}
    digests = {variant.name: variant.digest(directory) for variant in variants(directory)}
    stale = [
        variant
        for variant in variants(directory)
        if digests_before.get(variant.name) != digests[variant.name] or not (spv / f"{variant.name}.spv").exists()
    ]
    for variant in stale:
        compile_variant(compiler, directory, variant, spv / f"{variant.name}.spv")
    for path in spv.glob("*.spv"):
        if path.stem not in digests:
            path.unlink()
    by_entry, changed = interfaces(directory), {variant.entry for variant in stale}
    entries = {variant.entry: variant for variant in variants(directory)}
    by_entry = {
        entry: find_interface(compiler, directory, variant)
        if entry in changed or entry not in by_entry
        else by_entry[entry]
        for entry, variant in sorted(entries.items())
    }
    lines = ",\n".join(f" {json.dumps(entry)}: {json.dumps(rows)}" for entry, rows in by_entry.items())
    (spv / INTERFACES).write_text(f"{{\n{lines}\n}}\n")
    content = {"compiler": current, "digests": dict(sorted(digests.items()))}
    (spv / "manifest.json").write_text(json.dumps(content, indent=1) + "\n")
    return len(stale)


def sources(path: Path) -> list[Path]:
    """Return a source and its includes without duplicates."""
    paths = [path]
    for item in paths:
        for name in re.findall(r'^\s*#include\s+"([^"]+)"', item.read_text(), re.MULTILINE):
            beside = item.parent / name
            included = beside if beside.exists() else Path(generated().name) / name
            if included not in paths:
                paths.append(included)
    return paths


@functools.cache
def generated() -> tempfile.TemporaryDirectory[str]:
    """Return a folder with the sources that tools/token_products.py returns; it is deleted at exit."""
    folder = tempfile.TemporaryDirectory()
    for name, text in texts().items():
        (Path(folder.name) / name).write_text(text)
    return folder


def main() -> int:
    compiler = find_compiler()
    if compiler is None:
        print("error: glslc not found; install it (Debian: apt install glslc) or set GLSLC=path", file=sys.stderr)
        return 1
    for directory in [Path(name) for name in sys.argv[1:]] or DIRECTORIES:
        try:
            count = compile_directory(compiler, directory)
        except subprocess.CalledProcessError:
            return 1  # the compiler has reported the error
        print(f"{directory}: {count} compiled, {len(variants(directory)) - count} up to date")
    return 0


if __name__ == "__main__":
    sys.exit(main())
