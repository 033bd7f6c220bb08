"""The CPU backend: kernels written in Python and compiled by Numba for the processor's vector instructions."""

from __future__ import annotations

from collections.abc import Callable

from pumice.plugin import Quantizer, hookimpl
from pumice.plugin.unstable import Backend
from pumice_cpu.backend import CpuBackend
from pumice_cpu.quantizer import QUANTIZERS

__all__ = ["CpuBackend"]


@hookimpl
def pumice_register_backends(register: Callable[[str, type[Backend]], None]) -> None:
    register("cpu", CpuBackend)


@hookimpl
def pumice_register_quantizers(register: Callable[[str, Quantizer], None]) -> None:
    for type, quantizer in QUANTIZERS.items():
        register(type, quantizer)
