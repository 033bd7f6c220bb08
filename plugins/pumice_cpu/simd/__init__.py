"""Vectors for kernels: 64 bytes wide, with the same operations on every instruction set."""

from pumice_cpu.simd import registers as _registers  # imported for its side effect: indexing of registers
from pumice_cpu.simd import tiles as tiles
from pumice_cpu.simd.arithmetic import *
from pumice_cpu.simd.choose import *
from pumice_cpu.simd.dot import *
from pumice_cpu.simd.memory import *
from pumice_cpu.simd.types import *
