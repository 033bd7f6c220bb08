"""Cores and memory of this machine, and sizes of memory."""

import contextlib
import logging
import os
import re
from pathlib import Path

from pumice.errors import ConfigError

logger = logging.getLogger("pumice")

_SIZE = re.compile(r"(?P<number>\d+(\.\d+)?)\s*(?P<unit>[KMGT]?)(?P<binary>i?)B?", re.IGNORECASE | re.ASCII)
_NUMBER = re.compile(r"-?\d+(\.\d*)?", re.ASCII)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_MOST_BYTES = 1 << 60
_MOST_THREADS = 16  # upper limit on machines with fewer cores


def host_memory_bytes() -> int:
    """Return the machine's memory in bytes; 0 if the system does not report it."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not on every system
        return 0


def usable_memory_bytes(limit: float) -> int | None:
    """Return the bytes of host memory that a model may take: those available, at most ``limit`` GiB if it is not 0.

    None if neither is known.
    """
    sizes = [size for size in (available_memory_bytes(), int(limit * 2**30)) if size]
    return min(sizes, default=None)


def available_memory_bytes() -> int:
    """Return the bytes that programs can allocate without swapping; all memory where the system does not tell.

    Linux tells it in /proc/meminfo, and the limit of a container in its control group (version 2).
    """
    with contextlib.suppress(OSError, ValueError, IndexError, StopIteration):
        return min(_available_on_machine(), _available_in_container(Path("/sys/fs/cgroup")))
    return _available_on_machine()


def _available_in_container(group: Path) -> int:
    """Return the bytes that a control group leaves. Raises OSError or ValueError if there is no limit."""
    most, used = (int((group / name).read_text("ascii")) for name in ("memory.max", "memory.current"))
    statistics = (group / "memory.stat").read_text("ascii").splitlines()
    cached = next(int(line.split()[1]) for line in statistics if line.startswith("inactive_file "))
    return max(0, most - used + cached)


def _available_on_machine() -> int:
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


def bounded_threads(n_threads: int, option: str) -> int:
    """Return a number of threads: one per core for 0; a request for many more than the cores is reduced.

    A warning names ``option`` if it is.
    """
    most = max(_MOST_THREADS, cores())
    if n_threads > most:
        logger.warning("%s is %d, but this process has %d cores; using %d threads", option, n_threads, cores(), most)
    return min(n_threads, most) or cores()


def size_in(size: float | str, unit: str) -> float:
    """Return a size in ``unit``, such as ``MiB``: a number is in it already, a text may have a unit of its own.

    Raises ConfigError.
    """
    if not isinstance(size, str):
        return size
    if _NUMBER.fullmatch(size.strip()) and abs(float(size)) <= _MOST_BYTES:
        return float(size)
    try:
        return parse_size(size) / parse_size(f"1{unit}")
    except ConfigError:
        raise ConfigError(f"{size[:60]!r} is not a size, such as 12GiB, 512MiB or a number of {unit}") from None


def parse_size(text: str | float, name: str = "") -> int:
    """Return the bytes of ``12GiB``, ``12G`` (both binary), ``12GB`` (decimal), ``512MiB`` or a number of bytes.

    Raises ConfigError, which begins with the option's ``name`` if one is given.
    """
    match = _SIZE.fullmatch(str(text).strip())
    if match:
        decimal = str(text).strip()[-1:] in "bB" and not match["binary"]
        size = float(match["number"]) * (1000 if decimal else 1024) ** _POWERS[match["unit"].upper()]
        if size <= _MOST_BYTES:  # a long number is infinite
            return int(size)
    where = f"{name}: " if name else ""
    raise ConfigError(f"{where}{str(text)[:60]!r} is not a size of memory, such as 12GiB or 512MiB")
