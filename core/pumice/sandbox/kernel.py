"""System calls that Python does not wrap."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import sys
import time
from functools import cache
from pathlib import Path

LINUX = sys.platform == "linux"
#: In the notation of ``struct``: 64-bit pointers, little-endian.
MACHINE = platform.machine() if LINUX and sys.byteorder == "little" and sys.maxsize > 2**32 else ""

_PR_SET_DUMPABLE = 4
_PR_SET_NO_NEW_PRIVS = 38
_PAUSES, _PAUSE = 200, 0.001  # seconds
_THREADS = Path("/proc/self/task")
_EXITING = 0x4  # PF_EXITING of Linux's sched.h, among the flags of a thread


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def call(number: int, *arguments: int | ctypes.c_void_p | None) -> int:
    """Make a system call; integers are passed as 64 bits. Raises OSError."""
    passed = [ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments]
    return _checked(_libc().syscall(ctypes.c_long(number), *passed))


def forbid_new_privileges() -> None:
    """Forbid programs started by this process to gain privileges by setuid; a precondition of Landlock and seccomp."""
    _checked(_libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))


def hide_memory() -> None:
    """Prevent other processes of the same user from reading or tracing this one, and core dumps."""
    _checked(_libc().prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0))


def is_single_threaded() -> bool:
    """Return whether this process has one thread; threads that were joined just now get a moment to exit."""
    for _ in range(_PAUSES):
        if _n_threads() == 1:
            return True
        time.sleep(_PAUSE)
    return False


def end_numpy_threads() -> bool:
    """End the threads that NumPy's library started on import; return True if this process then has one thread.

    OpenBLAS starts them again when it needs them.
    """
    name = "numpy._core._multiarray_umath"
    if name in sys.modules:
        with contextlib.suppress(OSError, AttributeError, TypeError):
            ctypes.CDLL(sys.modules[name].__file__).blas_thread_shutdown_()  # searches its dependencies, too
    return is_single_threaded()


def _n_threads() -> int:
    """Return the number of threads that may still run code.

    A thread that was joined is listed until the kernel has removed it: on a busy machine for more than 0.1 s.
    """
    return sum(map(_runs, _THREADS.iterdir()))


def _runs(thread: Path) -> bool:
    try:
        fields = (thread / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):  # it is gone
        return False
    return not int(fields[6]) & _EXITING


def _checked(result: int) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result
