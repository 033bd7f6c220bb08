"""Host memory of weights: locked against swapping, and placed on the memory nodes of a machine (NUMA)."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import mmap
import os
import platform
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from pumice.wording import format_bytes

logger = logging.getLogger("pumice")

NODES = Path("/sys/devices/system/node")

_INTERLEAVE = 3  # MPOL_INTERLEAVE of Linux's set_mempolicy(2); 0 is the default policy
_SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237}


def lock_memory(arrays: Sequence[NDArray[Any]]) -> int:
    """Lock the pages of arrays in memory (mlock); return the locked bytes. A warning says what could not be locked."""
    pages = _pages(arrays)
    total, locked = sum(end - start for start, end in pages), 0
    for start, end in pages if os.name == "posix" else ():
        if ctypes.CDLL(None, use_errno=True).mlock(ctypes.c_void_p(start), ctypes.c_size_t(end - start)):
            break
        locked += end - start
    if locked < total:
        logger.warning("mlock: %s of %s of weights are locked: %s", *map(format_bytes, (locked, total)), _reason())
    return locked


def _pages(arrays: Sequence[NDArray[Any]]) -> list[tuple[int, int]]:
    """Return the ranges of addresses of whole pages that hold arrays, without overlaps."""
    size = mmap.PAGESIZE
    ranges = sorted((array.ctypes.data, array.ctypes.data + array.nbytes) for array in arrays if array.nbytes)
    merged: list[tuple[int, int]] = []
    for first, last in ranges:
        start, end = first // size * size, -(-last // size) * size
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def _reason() -> str:
    """Return why memory cannot be locked, and what to do."""
    try:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    except (ImportError, AttributeError):
        return "this system does not lock memory"
    if limit == resource.RLIM_INFINITY:
        return f"{os.strerror(ctypes.get_errno())}; is there enough memory?"
    return (
        f"the limit of locked memory (RLIMIT_MEMLOCK) is {format_bytes(limit)}; raise it by `ulimit -l unlimited`, "
        "or by LimitMEMLOCK=infinity of systemd"
    )


@contextlib.contextmanager
def numa_policy(mode: str, warns: bool = True) -> Iterator[None]:
    """Let this thread, and threads that it starts, allocate and run as ``mode`` says, of the option ``numa``.

    ``isolate`` binds threads to the cores of one node, where memory is allocated then; ``distribute`` interleaves pages
    over all nodes. The former state of this thread returns afterwards; its threads keep theirs.
    A mode that changes nothing on this machine is a warning, if ``warns``.
    """
    nodes = _nodes() if mode in ("isolate", "distribute") else {}
    if mode in ("isolate", "distribute") and len(nodes) < 2:
        if warns:
            logger.warning("numa: %s changes nothing: the system reports no second memory node", mode)
        mode = "off"
    if mode == "isolate":
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, _chosen(nodes, before))
        try:
            yield
        finally:
            os.sched_setaffinity(0, before)
    elif mode == "distribute":
        _set_policy(_INTERLEAVE, nodes)
        try:
            yield
        finally:
            _set_policy(0, ())
    else:
        yield


def _chosen(nodes: dict[int, set[int]], allowed: set[int]) -> set[int]:
    """Return the allowed cores of the node that has most of them."""
    return max((cores & allowed for cores in nodes.values()), key=len) or allowed


def _nodes() -> dict[int, set[int]]:
    """Return the cores of each memory node of Linux; empty if it does not tell."""
    nodes = {}
    with contextlib.suppress(OSError, ValueError):
        for folder in NODES.iterdir():
            if match := re.fullmatch(r"node(\d+)", folder.name):
                nodes[int(match[1])] = _numbers((folder / "cpulist").read_text())
    return {number: cores for number, cores in sorted(nodes.items()) if cores}


def _numbers(text: str) -> set[int]:
    """Return the numbers of a list such as ``0-3,8``."""
    numbers: set[int] = set()
    for item in filter(None, text.strip().split(",")):
        first, _, last = item.partition("-")
        numbers.update(range(int(first), int(last or first) + 1))
    return numbers


def _set_policy(policy: int, nodes: Sequence[int] | dict[int, set[int]]) -> None:
    """Set the memory policy of this thread, as set_mempolicy(2) does. A warning says if that fails."""
    call = _SET_MEMPOLICY.get(platform.machine())
    mask = sum(1 << node for node in nodes)
    words = (ctypes.c_ulong * (1 + max(nodes, default=0) // 64))()
    for i in range(len(words)):
        words[i] = mask >> 64 * i & (1 << 64) - 1
    libc = ctypes.CDLL(None, use_errno=True)
    n_bits = 64 * len(words) + 1 if mask else 0  # the system takes one bit less
    if call is None or libc.syscall(call, policy, words if mask else None, ctypes.c_ulong(n_bits)):
        reason = os.strerror(ctypes.get_errno()) if call else "not known how on this processor"
        logger.warning("numa: memory is not interleaved: %s", reason)
