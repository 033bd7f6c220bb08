"""The device that MLX computes on, its memory, and MLX's errors as Pumice's."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import mlx.core as mx

from pumice.plugin import BackendError, host_memory_bytes

CACHE_BYTES = 2**30


def is_gpu() -> bool:
    """Whether MLX has a GPU here."""
    return mx.default_device() == mx.Device(mx.DeviceType.gpu)


def describe() -> tuple[str, bool, int, dict[str, str]]:
    """The device's name, whether it is a GPU, its memory in bytes, and what else MLX says of it."""
    info = mx.device_info()
    name = str(info.get("device_name", "unknown"))
    n_bytes = _working_set(info) if is_gpu() else host_memory_bytes()
    return name, is_gpu(), n_bytes, {"architecture": str(info.get("architecture", "unknown"))}


def free_memory() -> int | None:
    """Bytes that are left for arrays; None on the processor, whose memory other backends share."""
    if not is_gpu():
        return None
    return max(_working_set(mx.device_info()) - mx.get_active_memory(), 0)


def _working_set(info: dict[str, str | int]) -> int:
    """Bytes that arrays may take: what Metal recommends at most, or the memory of another device."""
    for name in ("max_recommended_working_set_size", "free_memory", "total_memory", "memory_size"):
        if info.get(name):
            return int(info[name])
    return mx.get_memory_limit()


def prepare() -> None:
    """Bound what MLX keeps of memory that is free again, and have a Mac keep weights where its GPU reads them."""
    mx.set_cache_limit(CACHE_BYTES)
    if mx.metal.is_available() and is_gpu():
        mx.set_wired_limit(_working_set(mx.device_info()))


def release() -> None:
    """Give back memory of arrays that nobody has any more."""
    gc.collect()
    mx.clear_cache()


@contextmanager
def errors(doing: str) -> Iterator[None]:
    """Turn what MLX raises into a BackendError: it says that memory ran out in several ways, as a RuntimeError."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        text = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, MemoryError) or any(word in text.lower() for word in ("alloc", "memory")):
            text += "; give --n-gpu-layers, a smaller --n-ctx, or a smaller model"
        raise BackendError(f"mlx: {doing}: {text}") from error
