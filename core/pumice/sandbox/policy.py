"""Sandbox policies, and their enforcement."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pumice.errors import ConfigError
from pumice.sandbox import kernel, landlock, seccomp

MAX_FILES = 4096  # descriptors


@dataclass(frozen=True)
class Access:
    """Paths that a process may open, including everything below them; missing ones are ignored.

    Attributes:
        read: files and folders.
        write: folders in which files may also be created, changed and removed.
        devices: device nodes or their folders, which may be read, written and controlled by ioctl.
        folders: folders that may be listed, without reading their files.
    """

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()

    def __or__(self, other: Access) -> Access:
        return Access(
            read=self.read + other.read,
            folders=self.folders + other.folders,
            write=self.write + other.write,
            devices=self.devices + other.devices,
        )


@dataclass(frozen=True)
class Policy:
    """The permissions of a process.

    Attributes:
        access: paths that it may open.
        cache: cache folder for it and its libraries; empty for none.
        execute: programs that it may start until it is sealed; empty for none.
        families: address families of sockets that it may create.
        limits: resource limits by the suffix of RLIMIT_*: ``{"AS": 1 << 30}``. Existing lower limits are kept.
        required: end the process if a part cannot be enforced, instead of continuing without it.
    """

    access: Access = Access()
    cache: str = ""
    execute: tuple[str, ...] = ()
    families: tuple[int, ...] = ()
    limits: Mapping[str, int] = field(default_factory=dict)
    required: bool = False


@dataclass(frozen=True)
class Enforced:
    """The enforced parts. ``landlock``: its version, 0 if not enforced; ``missing``: reasons for the other parts."""

    landlock: int
    seccomp: bool
    missing: tuple[str, ...]

    def __str__(self) -> str:
        parts = [f"Landlock {self.landlock}"] if self.landlock else []
        parts += ["seccomp"] if self.seccomp else []
        return ", ".join([*(parts or ["no sandbox"]), *self.missing])


SWITCH = "PUMICE_SANDBOX"
"""Environment variable; ``off`` disables the sandbox, for debugging."""

_in_force: tuple[Policy, Enforced] | None = None  # of this process


def switched_off() -> bool:
    """Return whether the variable disables the sandbox. Raises ConfigError for another value."""
    value = os.environ.get(SWITCH, "")
    if value not in ("", "off"):
        raise ConfigError(f"{SWITCH}={value}: the only value is off; unset it to keep the sandbox")
    return value == "off"


def missing() -> tuple[str, ...]:
    """Return why processes cannot be confined on this machine, one line per missing part."""
    if not kernel.LINUX:
        return (f"Landlock and seccomp are parts of Linux, this is {sys.platform}",)
    problems: list[str] = []
    with _noting(problems, "Landlock: "):
        landlock.version()
    with _noting(problems, "seccomp: "):
        seccomp.check()
    return tuple(problems)


def enforce(policy: Policy) -> Enforced:
    """Confine this process and everything that it starts permanently. Missing parts are reported in the result.

    Call it in a process with one thread, since Landlock confines only the calling thread.
    """
    global _in_force
    if os.environ.get(SWITCH) == "off":
        return Enforced(0, False, (f"{SWITCH}=off",))
    problems: list[str] = []
    limit({"CORE": 0, "NOFILE": MAX_FILES, **policy.limits})
    version, filtered = 0, False
    if kernel.LINUX:
        with _noting(problems, ""):
            kernel.hide_memory()
            kernel.forbid_new_privileges()
        with _noting(problems, "Landlock: "):
            version = landlock.restrict(_rules(policy), bool(policy.families))
        with _noting(problems, "seccomp: "):
            seccomp.restrict(bool(policy.execute), policy.families)
            filtered = True
    enforced = Enforced(version, filtered, tuple(problems) if kernel.LINUX else missing())
    _in_force = policy, enforced
    return enforced


def granted() -> tuple[str, ...]:
    """Return the files and folders that this process was allowed to read; empty if nothing confines it."""
    return _in_force[0].access.read if _in_force else ()


def in_force() -> Enforced | None:
    """Return what confines this process; None if nothing does."""
    return _in_force[1] if _in_force else None


def seal() -> None:
    """Forbid this process to start others from now on, if it is confined."""
    if _in_force and _in_force[1].seccomp and _in_force[0].execute:
        seccomp.restrict(False, _in_force[0].families)


def limit(limits: Mapping[str, int]) -> None:
    """Lower resource limits, if the system supports them."""
    try:
        import resource
    except ImportError:
        return
    for name, value in limits.items():
        which = getattr(resource, f"RLIMIT_{name}", None)
        with contextlib.suppress(ValueError, OSError):
            if which is not None:
                hard = resource.getrlimit(which)[1]
                value = value if hard == resource.RLIM_INFINITY else min(value, hard)
                resource.setrlimit(which, (value, value))


def _rules(policy: Policy) -> Iterator[landlock.Rule]:
    access = policy.access
    kinds: tuple[tuple[tuple[str, ...], landlock.Right], ...] = (
        (access.read, landlock.READ),
        (access.folders, landlock.Right.READ_DIR),
        ((*access.write, *([policy.cache] if policy.cache else [])), landlock.WRITE),
        (access.devices, landlock.DEVICE),
        (policy.execute, landlock.EXECUTE),
    )
    return ((path, right) for paths, right in kinds for path in paths)


@contextlib.contextmanager
def _noting(problems: list[str], what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        problems.append(f"{what}{_REASONS.get(error.errno or 0, '') or error.strerror}")


_REASONS = {
    1: "not allowed here, perhaps by the container that this runs in",
    38: "not in this kernel",
    95: "switched off when the kernel was started (lsm=)",
}
