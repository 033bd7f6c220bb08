"""seccomp: restrict the system calls of a process by programs for the kernel's BPF machine.

A denied call returns EPERM, so that libraries that merely try it continue. Calls newer than this module return ENOSYS,
as if they did not exist. A call by another machine's numbers ends the process.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable, Sequence
from errno import EPERM
from typing import NamedTuple

from pumice.sandbox import kernel

_SET_MODE_FILTER, _GET_ACTION_AVAIL = 1, 2
_ALL_THREADS, _LOG, _NO_SLOW_STORES = 1, 2, 4  # flags; the last one disables a costly mitigation
_ALLOW, _ERRNO, _KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
_ENOSYS = 38

NEWEST = 469  # file_setattr of Linux 6.17, the newest known call

_CLONE3 = 435  # its flags are in memory, which filters cannot read; libraries fall back to `clone`
_CLONE_THREAD = 0x00010000
_NEW_NAMESPACES = 0x7E020000
_TERMINAL_INPUT = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX: insert input into the terminal


class _Machine(NamedTuple):
    audit: int  # AUDIT_ARCH_*
    column: int  # column in the numbers below


_MACHINES = {"x86_64": _Machine(0xC000003E, 0), "aarch64": _Machine(0xC00000B7, 1)}

#: Numbers by machine; -1 for missing calls.
_NUMBERS = {
    "seccomp": (317, 277),
    "clone": (56, 220),
    "fork": (57, -1),
    "vfork": (58, -1),
    "execve": (59, 221),
    "execveat": (322, 281),
    "kill": (62, 129),
    "tkill": (200, 130),
    "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_send_signal": (424, 424),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "prlimit64": (302, 261),
    "ioctl": (16, 29),
    "socket": (41, 198),
    "connect": (42, 203),
    "bind": (49, 200),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "kcmp": (312, 272),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "statmount": (457, 457),
    "listmount": (458, 458),
    "unshare": (272, 97),
    "setns": (308, 268),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "syslog": (103, 116),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "personality": (135, 92),
    "iopl": (172, -1),
    "ioperm": (173, -1),
    "modify_ldt": (154, -1),
    "uselib": (134, -1),
    "vhangup": (153, 58),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "userfaultfd": (323, 282),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    "fanotify_mark": (301, 263),
    "setuid": (105, 146),
    "setgid": (106, 144),
    "setreuid": (113, 145),
    "setregid": (114, 143),
    "setgroups": (116, 159),
    "setresuid": (117, 147),
    "setresgid": (119, 149),
    "setfsuid": (122, 151),
    "setfsgid": (123, 152),
    "capset": (126, 91),
    # These change how the kernel schedules any process of the user, not only the caller.
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setattr": (314, 274),
    "sched_setaffinity": (203, 122),
    # Landlock does not cover these calls, which change read-only files or reveal others.
    "inotify_init": (253, -1),
    "inotify_init1": (294, 26),
    "inotify_add_watch": (254, 27),
    "truncate": (76, 45),
    "chmod": (90, -1),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, -1),
    "fchown": (93, 55),
    "lchown": (94, -1),
    "fchownat": (260, 54),
    "utime": (132, -1),
    "utimes": (235, -1),
    "futimesat": (261, -1),
    "utimensat": (280, 88),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "setxattrat": (463, 463),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "removexattrat": (466, 466),
    "file_setattr": (469, 469),
    # Kernel memory for other processes.
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
}

#: Calls that are allowed depending on their arguments, see ``_filter``.
_BY_ARGUMENT = {"seccomp", "clone", "ioctl", "prlimit64", "sched_setaffinity", "socket", "kill", "tgkill"}
_SOCKETS = {"connect", "bind"}
_PROCESSES = {"fork", "vfork", "execve"}
_DENIED = _NUMBERS.keys() - _BY_ARGUMENT - _SOCKETS - _PROCESSES

_Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, operand
_LOAD, _JUMP_EQUAL, _JUMP_GREATER, _JUMP_BITS, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x06
_LOAD_NUMBER: _Instruction = (_LOAD, 0, 0, 0)  # offsets in struct seccomp_data
_LOAD_MACHINE: _Instruction = (_LOAD, 0, 0, 4)
_PASS: _Instruction = (_RETURN, 0, 0, _ALLOW)
_DENY: _Instruction = (_RETURN, 0, 0, _ERRNO | EPERM)
_UNKNOWN: _Instruction = (_RETURN, 0, 0, _ERRNO | _ENOSYS)


def check() -> None:
    """Check that this process may install filters. Raises OSError."""
    if kernel.MACHINE not in _MACHINES:
        raise OSError(_ENOSYS, f"unknown system call numbers of {kernel.MACHINE or 'this machine'}")
    action = struct.pack("<I", _ERRNO)
    kernel.call(number("seccomp"), _GET_ACTION_AVAIL, 0, _pointer(action))


def number(name: str) -> int:
    """Return the number of a system call on this machine; -1 if it has none."""
    return _NUMBERS[name][_MACHINES[kernel.MACHINE].column]


def restrict(processes: bool = False, families: Sequence[int] = ()) -> None:
    """Deny system calls to all threads of this process, and everything that it starts. Needs no privileges.

    Args:
        processes: allow starting and signalling other programs.
        families: allowed address families of sockets.

    Raises OSError.
    """
    check()
    flags = _ALL_THREADS | _NO_SLOW_STORES
    _install(_prologue(), flags)  # calls that libraries try routinely are not logged
    _install(_filter(processes, families), flags | _LOG)


def _prologue() -> list[_Instruction]:
    audit = _MACHINES[kernel.MACHINE].audit
    return [
        _LOAD_MACHINE,
        (_JUMP_EQUAL, 1, 0, audit),
        (_RETURN, 0, 0, _KILL_PROCESS),
        _LOAD_NUMBER,
        (_JUMP_GREATER, 0, 1, NEWEST),  # including the numbers of x32
        _UNKNOWN,
        (_JUMP_EQUAL, 0, 1, _CLONE3),
        _UNKNOWN,
        _PASS,
    ]


def _filter(processes: bool, families: Sequence[int]) -> list[_Instruction]:
    denied = _DENIED | (set() if families else _SOCKETS) | (set() if processes else _PROCESSES)
    process = () if processes else (os.getpid(),)  # constant, since there is no fork
    program = [
        _LOAD_NUMBER,
        *_where("clone", [_load(0), (_JUMP_BITS, 0, 1, _NEW_NAMESPACES), _DENY, *_only_threads(processes), _PASS]),
        *_where("ioctl", [_load(1), *_unless(_TERMINAL_INPUT), _PASS]),
        *_where("socket", [_load(0), *_if(families), _DENY]),
        *_where("prlimit64", [_load(0), *_if((0, *process)), _DENY]),
        *_where("sched_setaffinity", [_load(0), *_if((0, *process)), _DENY]),
    ]
    if not processes:
        program += [step for name in ("kill", "tgkill") for step in _where(name, [_load(0), *_if(process), _DENY])]
    for name in sorted(denied):
        program += _where(name, [_DENY])
    return [*program, _PASS]


def _where(name: str, then: list[_Instruction]) -> list[_Instruction]:
    """Return instructions for one system call; the last one returns."""
    return [(_JUMP_EQUAL, 0, len(then), number(name)), *then] if number(name) >= 0 else []


def _load(argument: int) -> _Instruction:
    """Return an instruction that loads the low half of an argument, all that matters of an int."""
    return (_LOAD, 0, 0, 16 + 8 * argument)


def _if(values: Iterable[int]) -> list[_Instruction]:
    return [step for value in values for step in ((_JUMP_EQUAL, 0, 1, value), _PASS)]


def _unless(values: Iterable[int]) -> list[_Instruction]:
    return [step for value in values for step in ((_JUMP_EQUAL, 0, 1, value), _DENY)]


def _only_threads(processes: bool) -> list[_Instruction]:
    return [] if processes else [(_JUMP_BITS, 1, 0, _CLONE_THREAD), _DENY]


def _install(program: list[_Instruction], flags: int) -> None:
    code = b"".join(struct.pack("<HBBI", *instruction) for instruction in program)
    buffer = ctypes.create_string_buffer(code, len(code))
    header = struct.pack("<HxxxxxxQ", len(program), ctypes.addressof(buffer))  # struct sock_fprog
    failed_thread = kernel.call(number("seccomp"), _SET_MODE_FILTER, flags, _pointer(header))
    if failed_thread:
        raise OSError(EPERM, f"thread {failed_thread} has a separate filter")


def _pointer(data: bytes) -> ctypes.c_void_p:
    return ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p)
