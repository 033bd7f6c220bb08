"""Instruction sets: detection of the machine's, and how LLVM targets it.

Kernels use vectors of 64 bytes, which LLVM splits where registers are shorter. Only the few operations in
``simd/dot.py`` are written for each set. Code for a set uses nothing beyond it, so all machines with the set can share
compiled code. Only kernels with ``amx`` in their names need more, which ``tiles_missing`` looks for.
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
    """An instruction set. ``needs`` are LLVM's names of the required processor features."""

    name: str
    processor: str  # LLVM's processor name; empty: any
    cpu: str
    features: str
    needs: tuple[str, ...]
    tokens: int  # rows of activations per pass of a matrix product, limited by registers for accumulators
    base: str = ""  # base set; only dot products differ, all other code is shared with the base

    @property
    def signed_offset(self) -> int:
        """The offset added to one operand of int8 products where only unsigned times signed is supported."""
        return 128 if self.name in ("avx512bf16", "avx512vnni", "avxvnni") else 0

    @property
    def multiplies_bf16(self) -> bool:
        """True if bfloat16 products are twice as fast as float32 products."""
        return self.name == "avx512bf16"


_X86_512 = "+avx512f,+avx512bw,+avx512dq,+avx512vl,+avx512cd,+fma,+f16c,-prefer-256-bit"
_TILES = ",+amx-tile,+amx-bf16"  # of kernels that are named after them; LLVM uses them in no others
_512 = ("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd")

#: All instruction sets, best first.
ISAS = (
    Isa(
        "avx512bf16",
        "x86_64",
        "x86-64-v4",
        _X86_512 + ",+avx512vnni,+avx512bf16" + _TILES,
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
    """Return True if this processor can run code for ``isa``."""
    return isa.processor in ("", processor()) and features().issuperset(isa.needs)


def processor() -> str:
    """Return LLVM's name of this machine's processor."""
    machine = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)


@functools.cache
def features() -> frozenset[str]:
    """Return the processor's features by LLVM's names: from Linux, else from LLVM if installed, else a safe minimum."""
    try:
        match = re.search(r"^(?:flags|Features)\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        match = None
    if match:
        return frozenset(_LINUX_NAMES.get(name, name) for name in match[1].split())
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
    "amx_tile": "amx-tile",
    "amx_bf16": "amx-bf16",
    "asimd": "neon",
    "asimddp": "dotprod",
}
#: Numbers of IsProcessorFeaturePresent (winnt.h), and the features they imply.
_WINDOWS_NUMBERS = {40: ("avx2", "fma", "f16c"), 43: ("neon", "dotprod")}


BY_NAME = {isa.name: isa for isa in ISAS}


@functools.cache
def current() -> Isa:
    """Return the process-wide instruction set: the one named by ``$PUMICE_SIMD``, or the best of this machine."""
    name = os.environ.get(ENVIRONMENT)
    if not name:
        return next(isa for isa in ISAS if machine_has(isa))
    if name not in BY_NAME:
        raise BackendError(f"unknown instruction set {name!r} in ${ENVIRONMENT}; choose one of {', '.join(BY_NAME)}")
    return BY_NAME[name]


def usable() -> Isa:
    """Return the current instruction set. Raises BackendError if this processor cannot run it."""
    isa = current()
    if not machine_has(isa):
        available = ", ".join(candidate.name for candidate in ISAS if machine_has(candidate))
        raise BackendError(f"this processor does not support ${ENVIRONMENT}={isa.name}; choose one of {available}")
    return isa


_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XTILEDATA = 158, 0x1023, 18  # of Linux on x86_64


@functools.cache
def tiles_missing() -> str:
    """Return why kernels cannot use the tile registers (AMX) in this process; empty if they can.

    Linux gives them to processes that ask for them, once for all threads (`arch_prctl(2)`, since 5.16).
    """
    if not features().issuperset(("amx-tile", "amx-bf16")):
        return "this processor has no AMX with bfloat16"
    if not current().multiplies_bf16:
        return f"kernels are compiled for {current().name}"
    if sys.platform != "linux":
        return "only Linux is supported"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(ctypes.c_long(_ARCH_PRCTL), ctypes.c_long(_ARCH_REQ_XCOMP_PERM), ctypes.c_long(_XTILEDATA)):
        return f"the system refuses it: {os.strerror(ctypes.get_errno())}"
    return ""
