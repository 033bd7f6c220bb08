"""Cores and memory of this machine."""

import os


def host_memory_bytes() -> int:
    """Return the machine's memory in bytes; 0 if the system does not report it."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not on every system
        return 0


def available_memory_bytes() -> int:
    """Return the bytes that programs can allocate without swapping; all memory where the system does not tell.

    Linux tells it in /proc/meminfo, which a confined process may not read.
    """
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            kib = next(int(line.split()[1]) for line in file if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError, IndexError):
        return host_memory_bytes()
    return 1024 * kib


def cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
