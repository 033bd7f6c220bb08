"""The CPU backend: kernels in Python that Numba compiles for the processor's vector instructions."""

from __future__ import annotations

from collections.abc import Callable

from pumice.plugin import Backend, hookimpl
from pumice_cpu.backend import CpuBackend

__all__ = ["CpuBackend"]


@hookimpl
def pumice_register_backends(register: Callable[[str, type[Backend]], None]) -> None:
    register("cpu", CpuBackend)
