"""Try the calls that a confined process must not make. Every attempt is harmless even if it succeeds.

Run as a program, it prints what is enforced and the result of each attempt as JSON.

System calls get an unmapped address, so that allowed calls fail with a different error than denied ones.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Callable, Mapping
from errno import EACCES, ENOSYS, EPERM
from pathlib import Path

from pumice.sandbox import kernel, policy, seccomp

_NOWHERE = 0x1000  # an unmapped address
_NEW_NAMES = 0x04000000  # CLONE_NEWUTS: a private host name
_PEEK = 3  # PTRACE_PEEKUSER
_TYPE = 0x5412  # TIOCSTI


def attempts(model: str = "", secret: str = "") -> Mapping[str, Callable[[], object]]:
    """Return the attempts by description. A denied attempt raises OSError with EPERM, EACCES or ENOSYS.

    ``model``: a file that this process may read; ``secret``: a file that it must not read.
    """
    parent = os.getppid()
    files: dict[str, Callable[[], object]] = {
        "read `/etc/passwd`": lambda: _read("/etc/passwd"),
        "list the home folder": lambda: os.listdir(Path.home()),
        "make a file in `/tmp`": _make_file,
        "watch the home folder (`inotify`)": lambda: os.close(_call("inotify_init1", 0)),
        "read the parent's `/proc/PID/mem`": lambda: _read(f"/proc/{parent}/mem", 0),
        "read the parent's `/proc/PID/environ`": lambda: _read(f"/proc/{parent}/environ"),
    }
    if secret:
        files["read a private key in `~/.ssh`"] = lambda: _read(secret)
    if model:
        files["write to the model"] = lambda: open(model, "r+b").close()
        files["change the model's mode (`chmod`)"] = lambda: os.chmod(model, os.stat(model).st_mode & 0o777)
        files["cut the model (`truncate`)"] = lambda: os.truncate(model, os.stat(model).st_size)
        files["rename the model"] = lambda: os.rename(model, model)
    sockets: dict[str, Callable[[], object]] = {
        f"make a socket: `{family}`": lambda family=family: _socket(family)  # type: ignore[misc]
        for family in ("AF_INET", "AF_INET6", "AF_UNIX", "AF_NETLINK", "AF_VSOCK")
    }
    processes: dict[str, Callable[[], object]] = {
        "start a program (`fork`, `execve`)": lambda: subprocess.run(["/bin/sh", "-c", ":"], check=True),
        "`fork`": _fork,
        "`execve`": lambda: _call("execve", _NOWHERE, _NOWHERE, _NOWHERE),
        "`execveat`: a file in memory": lambda: _call("execveat", -1, _NOWHERE, _NOWHERE, _NOWHERE, 0),
        "signal the parent (`kill`)": lambda: os.kill(parent, 0),
        "`pidfd_open` of the parent": lambda: os.close(_call("pidfd_open", parent, 0)),
        "`prlimit` of the parent": lambda: _call("prlimit64", parent, 7, 0, 0),
        "`setpriority` of the parent": lambda: _call("setpriority", 0, parent, os.getpriority(os.PRIO_PROCESS, parent)),
        "`ioprio_set` of the parent": lambda: _call("ioprio_set", 1, parent, 0),
        "`sched_setscheduler` of the parent": lambda: _call("sched_setscheduler", parent, -1, _NOWHERE),
        "`sched_setparam` of the parent": lambda: _call("sched_setparam", parent, _NOWHERE),
        "`sched_setattr` of the parent": lambda: _call("sched_setattr", parent, _NOWHERE, 0),
        "`sched_setaffinity` of the parent": lambda: _call("sched_setaffinity", parent, 8, _NOWHERE),
        "`ptrace` of the parent": lambda: _call("ptrace", _PEEK, parent, 0, 0),
        "`process_vm_readv` of the parent": lambda: _call("process_vm_readv", parent, _NOWHERE, 1, _NOWHERE, 1, 0),
    }
    kernels: dict[str, Callable[[], object]] = {
        "`unshare`": lambda: _call("unshare", _NEW_NAMES),
        "`mount`": lambda: _call("mount", _NOWHERE, _NOWHERE, _NOWHERE, 0, 0),
        "`bpf`": lambda: _call("bpf", 0, _NOWHERE, 128),
        "`io_uring_setup`": lambda: _call("io_uring_setup", 1, _NOWHERE),
        "`userfaultfd`": lambda: os.close(_call("userfaultfd", 1)),
        "`perf_event_open`": lambda: _call("perf_event_open", _NOWHERE, 0, -1, -1, 0),
        "`keyctl`": lambda: _call("keyctl", 0, -3, 0, 0, 0),
        "`init_module`": lambda: _call("init_module", _NOWHERE, 1, _NOWHERE),
        "`setuid`": lambda: _call("setuid", os.getuid()),
        "`shmget`": lambda: _call("shmget", 0, 0, 0),
        "type into the terminal (`TIOCSTI`)": lambda: _call("ioctl", 2, _TYPE, _NOWHERE),
    }
    return files | sockets | processes | kernels


def run(model: str = "", secret: str = "") -> dict[str, str]:
    """Return the result of each attempt: ``denied``, ``done``, or the error of an allowed attempt."""
    return {description: _outcome(attempt) for description, attempt in attempts(model, secret).items()}


def _outcome(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except OSError as error:
        return "denied" if error.errno in (EPERM, EACCES, ENOSYS) else str(error)
    return "done"


def _call(name: str, *arguments: int) -> int:
    return kernel.call(seccomp.number(name), *arguments)


def _read(path: str, n_bytes: int = 1) -> None:
    with open(path, "rb") as file:
        file.read(n_bytes)


def _make_file() -> None:
    path = Path("/tmp") / f"pumice-trial-{os.getpid()}"
    path.touch()
    path.unlink()


def _socket(family: str) -> None:
    socket.socket(getattr(socket, family), socket.SOCK_RAW if family == "AF_NETLINK" else socket.SOCK_STREAM).close()


def _fork() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


if __name__ == "__main__":
    print(json.dumps({"in_force": str(policy.in_force()), "outcomes": run()}))
