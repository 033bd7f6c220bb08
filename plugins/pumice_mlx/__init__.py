"""The MLX backend: Apple's GPUs through MLX, which on Linux also supports NVIDIA's GPUs and CPUs."""

from __future__ import annotations

from collections.abc import Callable

from pumice.plugin import hookimpl


@hookimpl
def pumice_register_backends(register: Callable[[str, str], None]) -> None:
    register("mlx", "pumice_mlx.backend:MlxBackend")
