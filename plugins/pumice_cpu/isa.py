"""Instruction sets: which one this machine has, and how LLVM is told to use it.

Kernels are written for vectors of 64 bytes; LLVM splits them where registers are shorter. Only the few
operations in ``simd/dot.py`` are written for each set. Code for a set uses nothing beyond it, so compiled
code can be shared by all machines that have the set.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import platform
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from pumice.plugin import BackendError

ENVIRONMENT = "PUMICE_SIMD"


@dataclass(frozen=True)
class Isa:
    """An instruction set. ``needs`` are LLVM's names of the features a processor must have."""

    name: str
    processor: str  # LLVM's name; empty: any
    cpu: str
    features: str
    needs: tuple[str, ...]
    tokens: int  # tokens multiplied at once by a matrix: as many accumulators as stay in registers
    base: str = ""  # the set that this one adds products of its own to; other code is the same for both

    @property
    def signed_offset(self) -> int:
        """What products of int8 with int8 add to one of the two, where only unsigned with signed is multiplied."""
        return 128 if self.name in ("avx512bf16", "avx512vnni", "avxvnni") else 0

    @property
    def multiplies_bf16(self) -> bool:
        """Whether products of bfloat16 are twice as fast as those of float32."""
        return self.name == "avx512bf16"


_X86_512 = "+avx512f,+avx512bw,+avx512dq,+avx512vl,+avx512cd,+fma,+f16c,-prefer-256-bit"
_512 = ("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd")

#: Best first.
ISAS = (
    Isa(
        "avx512bf16",
        "x86_64",
        "x86-64-v4",
        _X86_512 + ",+avx512vnni,+avx512bf16",
        (*_512, "avx512vnni", "avx512bf16"),
        8,
        "avx512",
    ),
    Isa("avx512vnni", "x86_64", "x86-64-v4", _X86_512 + ",+avx512vnni", (*_512, "avx512vnni"), 8, "avx512"),
    Isa("avx512", "x86_64", "x86-64-v4", _X86_512, _512, 8),
    Isa("avxvnni", "x86_64", "x86-64-v3", "+avxvnni", ("avx2", "fma", "f16c", "avxvnni"), 4, "avx2"),
    Isa("avx2", "x86_64", "x86-64-v3", "", ("avx2", "fma", "f16c"), 4),
    Isa("neon", "aarch64", "generic", "+neon,+dotprod", ("neon", "dotprod"), 4),
    Isa("plain", "", "", "", (), 2),
)


def machine_has(isa: Isa) -> bool:
    """Whether this processor can run code for ``isa``."""
    return isa.processor in ("", processor()) and features().issuperset(isa.needs)


def processor() -> str:
    """This machine's, as LLVM calls it."""
    machine = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)


@functools.cache
def features() -> frozenset[str]:
    """What this processor has, by LLVM's names: from Linux, from LLVM where it is installed, else what is certain."""
    try:
        found = re.search(r"^(?:flags|Features)\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    if found:
        return frozenset(_LINUX_NAMES.get(name, name) for name in found[1].split())
    if importlib.util.find_spec("llvmlite"):
        import llvmlite.binding as llvm

        return frozenset(name for name, present in llvm.get_host_cpu_features().items() if present)
    if sys.platform == "darwin" and processor() == "aarch64":
        return frozenset(("neon", "dotprod"))  # every Apple processor that runs macOS
    if sys.platform == "win32":
        has = ctypes.WinDLL("kernel32").IsProcessorFeaturePresent
        return frozenset(name for number, names in _WINDOWS_NUMBERS.items() if has(number) for name in names)
    return frozenset()


_LINUX_NAMES = {
    "avx512_vnni": "avx512vnni",
    "avx512_bf16": "avx512bf16",
    "avx_vnni": "avxvnni",
    "asimd": "neon",
    "asimddp": "dotprod",
}
#: Of IsProcessorFeaturePresent (winnt.h), and what every processor has that has it.
_WINDOWS_NUMBERS = {40: ("avx2", "fma", "f16c"), 43: ("neon", "dotprod")}


BY_NAME = {isa.name: isa for isa in ISAS}


@functools.cache
def current() -> Isa:
    """The set that ``$PUMICE_SIMD`` names, or the best this machine has. One for the whole process."""
    wanted = os.environ.get(ENVIRONMENT)
    if not wanted:
        return next(isa for isa in ISAS if machine_has(isa))
    if wanted not in BY_NAME:
        raise BackendError(f"${ENVIRONMENT} is {wanted!r}; known are {', '.join(BY_NAME)}")
    return BY_NAME[wanted]


def usable() -> Isa:
    """The current set, whose code this processor can run; BackendError if it cannot."""
    isa = current()
    if not machine_has(isa):
        here = ", ".join(each.name for each in ISAS if machine_has(each))
        raise BackendError(f"${ENVIRONMENT} is {isa.name!r}, which this processor does not have; it has {here}")
    return isa
