"""The NumPy backend: a readable reference of every operation in float32, against which the others are tested."""

from __future__ import annotations

from collections.abc import Callable

from pumice.plugin import hookimpl
from pumice.plugin.unstable import Backend
from pumice_numpy.backend import NumpyBackend

__all__ = ["NumpyBackend"]


@hookimpl
def pumice_register_backends(register: Callable[[str, type[Backend]], None]) -> None:
    register("numpy", NumpyBackend)
