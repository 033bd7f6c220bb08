"""MLX's device and its memory; translation of MLX's errors."""

from __future__ import annotations

import gc
import importlib.metadata
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import mlx.core as mx

from pumice.plugin import BackendError
from pumice.plugin.unstable import cache_homes, host_memory_bytes, is_safe, stated_cache

CACHE_BYTES = 2**30
KERNELS = "MLX_PTX_CACHE_DIR"  # environment variable: MLX's folder of kernels that it has compiled for CUDA


def is_gpu() -> bool:
    """Return True if MLX has a GPU."""
    return mx.default_device() == mx.Device(mx.DeviceType.gpu)


def describe() -> tuple[str, bool, int, dict[str, str]]:
    """Return the device's name, True for a GPU, its memory in bytes, and MLX's other details."""
    info = mx.device_info()
    name = str(info.get("device_name", "unknown"))
    n_bytes = _working_set(info) if is_gpu() else host_memory_bytes()
    return name, is_gpu(), n_bytes, {"architecture": str(info.get("architecture", "unknown"))}


def free_memory() -> int | None:
    """Return the free bytes for arrays; None on the CPU, whose memory other backends share."""
    if not is_gpu():
        return None
    return max(_working_set(mx.device_info()) - mx.get_active_memory(), 0)


def _working_set(info: dict[str, str | int]) -> int:
    """Return the maximum bytes for arrays: Metal's recommendation, or the memory of another device."""
    for name in ("max_recommended_working_set_size", "free_memory", "total_memory", "memory_size"):
        if info.get(name):
            return int(info[name])
    return mx.get_memory_limit()


def prepare() -> None:
    """Limit MLX's cache of freed memory, keep the kernels that it compiles, and wire weights on a Mac."""
    mx.set_cache_limit(CACHE_BYTES)
    keep_kernels()
    if mx.metal.is_available() and is_gpu():
        mx.set_wired_limit(_working_set(mx.device_info()))


def keep_kernels() -> None:
    """Let MLX keep compiled kernels in Pumice's cache folder, unless the environment names another one.

    By default they are in a temporary folder, which other users may have created, and a confined process cannot write.
    MLX tells kernels of different GPUs apart as little as those of its versions.
    """
    with suppress(RuntimeError):  # the user has no home directory
        home = Path(stated_cache() or cache_homes()[-1] / "pumice")
        if KERNELS not in os.environ and is_safe(home):
            architecture = mx.device_info().get("architecture", "unknown")
            os.environ[KERNELS] = str(home / "mlx" / f"{importlib.metadata.version('mlx')}-{architecture}")


def release() -> None:
    """Release the cached memory of freed arrays."""
    gc.collect()
    mx.clear_cache()


@contextmanager
def errors(doing: str) -> Iterator[None]:
    """Turn MLX's exceptions into BackendError; MLX reports exhausted memory by several kinds of RuntimeError."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        text = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, MemoryError) or any(word in text.lower() for word in ("alloc", "memory")):
            text += "; set --n-gpu-layers, or use a smaller --ctx-size or model"
        if "Failed to load compiled" in text and (folder := os.environ.get(KERNELS)):
            text += f"; delete {folder}, whose files are damaged or of another GPU"
        raise BackendError(f"mlx: {doing}: {text}") from error
