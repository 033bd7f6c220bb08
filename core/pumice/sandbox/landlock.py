"""Landlock: restrict the files that a process may open. https://docs.kernel.org/userspace-api/landlock.html

A ruleset handles every right that it knows, and so removes all of them, except for paths that have a rule.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
import struct
from collections.abc import Iterable
from enum import IntFlag

from pumice.sandbox import kernel

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ASK_VERSION = 1  # flag of _CREATE_RULESET
_PATH_BENEATH = 1  # type of a rule
_LOG_NEW_EXEC_ON = 1 << 1  # also log denials of programs that this one starts


class Right(IntFlag):
    """LANDLOCK_ACCESS_FS_*"""

    EXECUTE = 1 << 0
    WRITE_FILE = 1 << 1
    READ_FILE = 1 << 2
    READ_DIR = 1 << 3
    REMOVE_DIR = 1 << 4
    REMOVE_FILE = 1 << 5
    MAKE_CHAR = 1 << 6
    MAKE_DIR = 1 << 7
    MAKE_REG = 1 << 8
    MAKE_SOCK = 1 << 9
    MAKE_FIFO = 1 << 10
    MAKE_BLOCK = 1 << 11
    MAKE_SYM = 1 << 12
    REFER = 1 << 13  # move files between directories
    TRUNCATE = 1 << 14
    IOCTL_DEV = 1 << 15


READ = Right.READ_FILE | Right.READ_DIR
WRITE = (
    READ
    | Right.WRITE_FILE
    | Right.TRUNCATE
    | Right.MAKE_DIR
    | Right.MAKE_REG
    | Right.REMOVE_DIR
    | Right.REMOVE_FILE
    | Right.REFER
)
DEVICE = READ | Right.WRITE_FILE | Right.IOCTL_DEV
EXECUTE = Right.EXECUTE | Right.READ_FILE
_OF_FILES = Right.EXECUTE | Right.WRITE_FILE | Right.READ_FILE | Right.TRUNCATE | Right.IOCTL_DEV

_SINCE = {Right.REFER: 2, Right.TRUNCATE: 3, Right.IOCTL_DEV: 5}  # first version with a right
_NETWORK_SINCE, _BIND_AND_CONNECT = 4, 0b11
_SCOPES_SINCE, _ABSTRACT_SOCKETS_AND_SIGNALS = 6, 0b11
_LOGS_SINCE = 7

Rule = tuple[str, Right]


def version() -> int:
    """Return the kernel's Landlock version (ABI). Raises OSError if it is missing or disabled."""
    return kernel.call(_CREATE_RULESET, None, 0, _ASK_VERSION)


def restrict(rules: Iterable[Rule], network: bool = False) -> int:
    """Remove every right on files, except those of ``rules``, from this thread and everything that it starts.

    Unless ``network``, TCP is denied, too, as are signals to other processes if the kernel supports it. Call it in a
    process with one thread, since other threads would keep their rights.

    Args:
        rules: allowed rights by path; paths that do not exist are ignored.
        network: allow TCP.

    Returns:
        Landlock's version.

    Raises:
        OSError: the rules cannot be enforced.
    """
    if not kernel.is_single_threaded():
        raise OSError(errno.EBUSY, "other threads are already running")
    has = version()
    rights = sum(right for right in Right if _SINCE.get(right, 1) <= has)
    ports = _BIND_AND_CONNECT if has >= _NETWORK_SINCE and not network else 0
    scopes = _ABSTRACT_SOCKETS_AND_SIGNALS if has >= _SCOPES_SINCE else 0
    size = 24 if scopes else 16 if ports else 8
    attributes = struct.pack("<QQQ", rights, ports, scopes)[:size]
    ruleset = kernel.call(_CREATE_RULESET, _pointer(attributes), size, 0)
    try:
        for path, right in rules:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError, OverflowError, ValueError):
                _allow(ruleset, path, right & rights)
        kernel.call(_RESTRICT_SELF, ruleset, _LOG_NEW_EXEC_ON if has >= _LOGS_SINCE else 0)
    finally:
        os.close(ruleset)
    return has


def _allow(ruleset: int, path: str, right: int) -> None:
    file = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(file).st_mode):
            right &= _OF_FILES
        rule = struct.pack("<Qi", right, file)
        kernel.call(_ADD_RULE, ruleset, _PATH_BENEATH, _pointer(rule), 0)
    finally:
        if not path.startswith("/proc/"):  # /proc nodes are recreated without their rule when unused
            os.close(file)


def _pointer(data: bytes) -> ctypes.c_void_p:
    return ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p)
