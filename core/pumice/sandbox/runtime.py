"""The files that Python, its extensions and the C library open in every program."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pumice.sandbox.policy import Access

_SYSTEM = (
    "/usr",
    "/lib",
    "/lib64",
    "/nix/store",
    "/run/opengl-driver",
    "/etc/ld.so.cache",
    "/etc/ld.so.preload",
    "/etc/localtime",
    "/etc/locale.alias",
    "/etc/ssl/openssl.cnf",
)
_PROCESS = (
    "/proc/self",
    "/proc/cpuinfo",
    "/proc/filesystems",
    "/proc/loadavg",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/version",
    "/proc/sys/kernel/osrelease",
    "/proc/sys/vm",
)
_MACHINE = ("/sys/devices/system", "/sys/fs/cgroup", "/sys/kernel/mm/transparent_hugepage")
_READ_DEVICES = ("/dev/zero", "/dev/random", "/dev/urandom")
_DEVICES = ("/dev/null", "/dev/full")


def python_access() -> Access:
    """Return the files that this interpreter and its libraries read."""
    libraries = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    imports = [sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix, *sys.path]
    paths = [path for path in (*imports, *libraries) if os.path.isabs(path) and path != os.sep]
    return Access((*paths, *_checkout(), *_SYSTEM, *_PROCESS, *_MACHINE, *_READ_DEVICES), (), _DEVICES)


def interpreter() -> tuple[str, ...]:
    """Return the files executed when Python starts: the program, and the loader of its libraries."""
    loaders = [path for folder in ("/lib", "/lib64") for path in Path(folder).glob("ld-*.so*")]
    return (os.path.realpath(sys.executable), *map(str, loaders))


def _checkout() -> list[str]:
    """Return the entries at the root of a checkout, if Pumice runs from one."""
    package = Path(__file__).resolve().parents[1]
    root = package.parents[1]
    return [] if (package / "registry.yaml").exists() else [str(root / name) for name in ("registry.yaml", "shaders")]
