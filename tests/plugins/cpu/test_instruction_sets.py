"""Every instruction set, each in a process of its own: results where this machine has it, else its machine code."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from nightly import EXAMPLES, variants
from pumice_cpu.isa import BY_NAME, ISAS, Isa, current, machine_has

FOLDER = Path(__file__).parent
PRODUCTS = [FOLDER / name for name in ("test_cpu_linear.py", "test_cpu_experts.py")]
OTHERS = [isa.name for isa in ISAS if machine_has(isa) and isa != current()]
ASSEMBLY = """
from pumice_cpu.codegen import _optimized, target_machine
from pumice_cpu.compiler import source_of
from pumice_cpu.isa import current
machine = target_machine(current())  # which emits an object file for the library, and a text here
print(machine.emit_assembly(_optimized(source_of("linear.matmul:q4_0:2")[1], current(), machine)))
"""

#: What the product of int8 with int8 must be made of, and the registers that must not occur.
INSTRUCTIONS = {
    "avx512bf16": (r"vpdpbusd\s.*%zmm", None),
    "avx512vnni": (r"vpdpbusd\s.*%zmm", None),
    "avx512": (r"vpmaddubsw\s.*%zmm", "vpdpbusd"),
    "avxvnni": (r"\{vex\}\s+vpdpbusd\s.*%ymm", "%zmm"),
    "avx2": (r"vpmaddubsw\s.*%ymm", "%zmm|vpdpbusd"),
    "neon": (r"\bsdot\s", None),
    "plain": (".", "%[yz]mm"),
}


def run(name: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PUMICE_SIMD": name, **variables}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environment, check=False)


def base(isa: Isa) -> str:
    return isa.base or isa.name


def files(isa: Isa) -> list[Path]:
    """The tests to run again: those of products alone if the rest of the code is that of the current set's base."""
    return PRODUCTS if base(isa) == base(current()) else [FOLDER]


@pytest.mark.parametrize("name", variants(OTHERS, ["avx2"] if "avx2" in OTHERS else []))
def test_results(name: str) -> None:
    """The tests that are marked so, with the kernels of another set. AVX2 is that of most machines."""
    arguments = ("-m", "pytest", "-q", "-x", "-m", "every_instruction_set", "-p", "no:cacheprovider")
    result = run(name, *arguments, *map(str, files(BY_NAME[name])), PUMICE_EXAMPLES=str(-(-EXAMPLES // 3)))
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-1000:]


@pytest.mark.parametrize("name", variants(INSTRUCTIONS, ["avx512vnni", "avx2", "neon"]))
def test_machine_code(name: str) -> None:
    result = run(name, "-c", ASSEMBLY)
    assert result.returncode == 0, result.stderr[-1000:]
    wanted, unwanted = INSTRUCTIONS[name]
    assert re.search(wanted, result.stdout)
    assert unwanted is None or not re.search(unwanted, result.stdout)


def test_machine_code_of_tiles() -> None:
    """Products for AMX use all eight tile registers, and give them back. This machine may have none."""
    result = run("avx512bf16", "-c", ASSEMBLY.replace("linear.matmul:q4_0:2", "tiles.matmul:bf16:amx"))
    assert result.returncode == 0, result.stderr[-1000:]
    for instruction in (r"ldtilecfg\s", r"tilezero\s+%tmm3", r"tdpbf16ps\s+%tmm7, %tmm5, %tmm3", r"tilerelease\s"):
        assert re.search(instruction, result.stdout), instruction


@pytest.mark.parametrize("name", ["nonsense", next(isa.name for isa in ISAS if not machine_has(isa))])
def test_a_set_that_cannot_be_used_is_refused(name: str) -> None:
    result = run(name, "-c", "import sys; from pumice.cli import main; sys.argv[1:] = ['devices']; main()")
    assert result.returncode == 0
    line = next(line for line in result.stdout.splitlines() if line.startswith("cpu"))
    assert "$PUMICE_SIMD" in line
    assert name in line
    assert current().name in line
