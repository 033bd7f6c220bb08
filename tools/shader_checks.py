"""Checks of kernels for GPUs that are not at hand: SPIR-V by spirv-val, and its translation to Metal by SPIRV-Cross.

The programs are those on PATH, or those named by SPIRV_VAL, SPIRV_OPT and SPIRV_CROSS. Older than 2024 they do not know
the extension for matrix units (Debian 13 has newer ones: spirv-tools, spirv-cross).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SHADERS = Path(__file__).resolve().parents[1] / "shaders" / "spv"
SPIRV_MINOR = 5  # byte of a module with the minor version of SPIR-V
METAL = "20300"  # version of Metal's language: 2.3, of macOS 11, has the sums over SIMD groups


def program(name: str) -> str | None:
    """Return the path of ``spirv-val``, ``spirv-opt`` or ``spirv-cross``, or None."""
    return os.environ.get(name.upper().replace("-", "_")) or shutil.which(name)


def variants(family: str) -> list[Path]:
    """Return the compiled variants of a kernel, for all types of weights or caches."""
    return sorted([*SHADERS.glob(f"{family}.spv"), *SHADERS.glob(f"{family}.*.spv")])


def families_for_all() -> list[str]:
    """Return the kernels that need no newer Vulkan than 1.2: others are SPIR-V 1.6."""
    by_family: dict[str, set[int]] = {}
    for path in SHADERS.glob("*.spv"):
        by_family.setdefault(path.stem.partition(".")[0], set()).add(path.read_bytes()[SPIRV_MINOR])
    return sorted(name for name, versions in by_family.items() if max(versions) < 6)


def invalid(validator: str, families: Mapping[str, str]) -> list[str]:
    """Return the variants that are not valid for a version of Vulkan, such as "1.2", with the validator's message."""
    commands = {
        f"{path.stem} for Vulkan {api}": [validator, "--target-env", f"vulkan{api}", str(path)]
        for family, api in families.items()
        for path in variants(family)
    }
    return _failed(commands)


def untranslated(translator: str, families: Iterable[str]) -> list[str]:
    """Return the variants that have no translation to Metal, with the translator's message."""
    commands = {
        f"{path.stem} to Metal": [translator, str(path), "--msl", "--msl-version", METAL]
        for family in families
        for path in variants(family)
    }
    return _failed(commands)


def invalid_pipelines(
    optimizer: str, validator: str, pipelines: Mapping[tuple[str, tuple[int, ...]], str]
) -> list[str]:
    """Return the specialized kernels that are not valid for a version of Vulkan, with a message.

    Their constants become those of the pipeline, since the sizes of fragments of matrix units are constants: spirv-val
    compares the operands of each product.
    """
    with tempfile.TemporaryDirectory() as folder:
        made, frozen = {}, {}
        for number, ((kernel, constants), api) in enumerate(pipelines.items()):
            name, path = f"{kernel} {constants} for Vulkan {api}", str(Path(folder) / f"{number}.spv")
            values = " ".join(f"{i}:{value}" for i, value in enumerate(constants))
            passes = ["--freeze-spec-const", "--fold-spec-const-op-composite"]
            source = str(SHADERS / f"{kernel}.spv")
            made[name] = [
                *(optimizer, f"--set-spec-const-default-value={values}", *passes, "--unify-const", source, "-o", path),
            ]
            frozen[name] = [validator, "--target-env", f"vulkan{api}", path]
        return _failed(made) or _failed(frozen)


def _failed(commands: Mapping[str, Sequence[str]]) -> list[str]:
    def message(name: str) -> str | None:
        done = subprocess.run(commands[name], capture_output=True, text=True)
        return f"{name}: {done.stderr.strip() or done.returncode}" if done.returncode else None

    with ThreadPoolExecutor(2) as pool:
        return [line for line in pool.map(message, commands) if line]
