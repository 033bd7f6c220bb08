"""Compiled kernels on disk. A process that finds its kernels there never imports Numba.

A file's name is a digest of everything its code depends on: this package's sources, the formulas of operations, the
versions of Numba and llvmlite, the instruction set and the kernel's name. So an upgrade, or another machine on a
shared home, uses other files. Files are written whole or not at all, and checked when read.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import logging
import os
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from pumice.plugin import cache_homes
from pumice_cpu import sources
from pumice_cpu.isa import current

log = logging.getLogger("pumice")


class Entry(NamedTuple):
    """A compiled kernel: its parameters in order, and its object file."""

    parameters: list[str]
    code: bytes


def load(name: str) -> Entry | None:
    """The kernel, or None if it is not there or not whole."""
    for folder in folders():
        try:
            content = (folder / _file_name(name)).read_bytes()
        except OSError:
            continue
        digest, rest = content[: sources.DIGEST_BYTES], content[sources.DIGEST_BYTES :]
        if _digest(rest) == digest:
            header, _, code = rest.partition(b"\n")
            return Entry(json.loads(header), code)
    return None


def save(name: str, entry: Entry) -> None:
    """Keep a kernel in the first folder that can be written; without one it is compiled again next time."""
    rest = json.dumps(entry.parameters).encode() + b"\n" + entry.code
    for folder in folders():
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write(folder / _file_name(name), _digest(rest) + rest)
            return
        except OSError:
            continue


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all. Raises OSError."""
    file = tempfile.NamedTemporaryFile(dir=path.parent, delete=False)  # noqa: SIM115
    try:
        with file:
            file.write(content)
        os.replace(file.name, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(file.name)
        raise


@functools.cache
def folders() -> list[Path]:
    """``$PUMICE_CACHE`` alone, or the user's cache folder, then one of their own among temporary files.

    A confined process reads the user's, and keeps in one that only confined processes read. A folder that other users
    may write to is left out.
    """
    given = os.environ.get("PUMICE_CACHE")
    homes = _homes()
    if given:
        return [*filter(_is_safe, [Path(given), *homes[1:]])]
    folders = [*filter(_is_safe, homes)]
    if hasattr(os, "getuid"):
        with contextlib.suppress(FileNotFoundError):  # no folder of temporary files can be written
            temporary = Path(tempfile.gettempdir()) / f"pumice-kernels-{os.getuid()}"
            if _is_private(temporary):
                folders.append(temporary)
    return folders


def _homes() -> list[Path]:
    """Folders of kernels in the user's folders of caches."""
    base = os.environ.get("LOCALAPPDATA", "")
    if sys.platform == "win32" and os.path.isabs(base):
        return [Path(base) / "pumice" / "kernels"]
    try:
        return [home / "pumice" / "kernels" for home in cache_homes()]
    except RuntimeError:  # no home
        return []


def _is_safe(folder: Path) -> bool:
    """True if no other user but root may write to a folder, or it does not exist yet: code is run from there."""
    try:
        status = folder.stat()
    except OSError:
        return True
    safe = not hasattr(os, "getuid") or (status.st_uid in (os.getuid(), 0) and not status.st_mode & 0o022)
    if not safe:
        log.warning("cpu: %s is not used: other users may write kernels there; chmod 700 it, or own it", folder)
    return safe


def _is_private(folder: Path) -> bool:
    """Code is run from here, so nobody else may write to it."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError:
        return False
    return status.st_uid == os.getuid() and not folder.is_symlink() and not status.st_mode & 0o022


def _file_name(name: str) -> str:
    found = f"{_versions()} {current().name} {name}".encode()
    digest = hashlib.blake2b(found, digest_size=sources.DIGEST_BYTES)
    return f"{digest.hexdigest()}.kernel"


@functools.cache
def _versions() -> str:
    packages = [importlib.metadata.version(package) for package in ("numba", "llvmlite")]
    return " ".join([sources.digest(), *packages, sys.platform])


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=sources.DIGEST_BYTES).digest()
