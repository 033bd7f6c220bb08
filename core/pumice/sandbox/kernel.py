"""System calls that Python has no function for."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from functools import cache

LINUX = sys.platform == "linux"
#: As ``struct`` calls it: the machine's pointers are 64 bits wide and the low half of a number comes first.
MACHINE = platform.machine() if LINUX and sys.byteorder == "little" and sys.maxsize > 2**32 else ""

_PR_SET_DUMPABLE = 4
_PR_SET_NO_NEW_PRIVS = 38


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def call(number: int, *arguments: int | ctypes.c_void_p | None) -> int:
    """Make a system call; integers are passed as 64 bits. Raises OSError."""
    passed = [ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments]
    return _checked(_libc().syscall(ctypes.c_long(number), *passed))


def forbid_new_privileges() -> None:
    """No program that this process starts gains rights by being setuid. Landlock and seccomp ask for it."""
    _checked(_libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))


def hide_memory() -> None:
    """No process of the same user may read or trace this one, and a crash writes no memory to the disk."""
    _checked(_libc().prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0))


def n_threads() -> int:
    return len(os.listdir("/proc/self/task"))


def _checked(result: int) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result
