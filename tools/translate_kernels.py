"""Translate common CPU kernels to LLVM IR, which is committed: ``python -m tools.translate_kernels``.

A checkout, or a wheel without compiled kernels, then needs LLVM alone for its first words. Run it after a change of the
kernels' sources (``pumice_cpu.sources.PARTS``); until then first starts are slow.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from pumice_cpu import pretranslated
from pumice_cpu.compiler import source_of
from pumice_cpu.isa import ENVIRONMENT, ISAS
from pumice_cpu.pretranslated import FILE
from pumice_cpu.simd.define import definitions

ROOT = Path(__file__).resolve().parents[1]
MODULES = (
    *("attention", "attention_softmax", "elementwise", "embedding", "kv_cache", "linear", "linear_float"),
    *("norms", "pack", "quantize", "rope", "rows", "step"),
)
"""Modules of kernels that dense text models need."""
WORDS = {
    *("f32", "f16", "q4_0", "q4_1", "q5_0", "q8_0", "q4_k", "q5_k", "q6_k"),
    *("4x1", "8x1", "4x2", "8x2", "tiles", "plain", "causal", "single", "2", "4", "8"),
    *("add", "mul", "scale", "silu", "silu_mul", "gelu_mul", "neox", "normal"),
}
"""Variants of the files that most people try first."""


def is_common(name: str) -> bool:
    """Return True if the IR of a kernel is committed."""
    path, *arguments = name.split(":")
    is_cache = path.startswith(("attention.attend", "kv_cache.store"))
    return path.split(".")[0] in MODULES and WORDS.issuperset(arguments) and (not is_cache or arguments[0] == "f16")


def names() -> list[str]:
    """Return the common kernels of all instruction sets, of which each process lists one's."""
    code = "from tools.compile_kernels import kernel_names; print(*kernel_names())"
    found: dict[str, None] = {}
    for isa in ISAS:
        command = [sys.executable, "-c", code]
        output = subprocess.check_output(command, env={**os.environ, ENVIRONMENT: isa.name}, cwd=ROOT, text=True)
        found |= dict.fromkeys(filter(is_common, output.split()))
    return sorted(found)


def main() -> int:
    from tqdm import tqdm

    kernels = {name: source_of(name) for name in tqdm(names(), disable=None)}
    pretranslated.write(kernels, {isa.name: definitions(isa) for isa in ISAS})
    print(f"{FILE.relative_to(ROOT)}: {FILE.stat().st_size / 1024:.0f} KiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
