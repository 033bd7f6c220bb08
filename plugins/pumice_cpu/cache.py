"""An on-disk cache of compiled kernels. A process whose kernels are all cached never imports Numba.

A file's name is a digest of everything its code depends on: this package's sources, the formulas of operations, the
versions of Numba and llvmlite, the instruction set and the kernel's name. An upgrade, or another machine that shares
the home directory, therefore uses other files. Files are written atomically and verified when read.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
import logging
import os
import sys
from pathlib import Path
from typing import NamedTuple

from pumice.plugin.unstable import cache_homes, is_safe, read_file, stated_cache, temporary_folder, write_file
from pumice_cpu import sources
from pumice_cpu.isa import current

logger = logging.getLogger("pumice")

MOST_BYTES = 64 * 2**20  # maximum size of a kernel


class CompiledKernel(NamedTuple):
    """A compiled kernel: the names of its parameters, in order, and its object file."""

    parameters: list[str]
    code: bytes


def load(name: str) -> CompiledKernel | None:
    """Return the cached kernel, or None if it is missing or damaged."""
    for folder in folders():
        try:
            content = read_file(folder / _file_name(name), MOST_BYTES)
        except OSError:
            continue
        digest, rest = content[: sources.DIGEST_BYTES], content[sources.DIGEST_BYTES :]
        if _digest(rest) == digest:
            header, _, code = rest.partition(b"\n")
            return CompiledKernel(json.loads(header), code)
    return None


def save(name: str, entry: CompiledKernel) -> None:
    """Store a kernel in the first writable folder. Without one, log a warning: the next process compiles it again."""
    rest = json.dumps(entry.parameters).encode() + b"\n" + entry.code
    for folder in folders():
        try:
            write_file(folder / _file_name(name), _digest(rest) + rest)
            return
        except OSError:
            continue
    _warn_once()


@functools.cache
def _warn_once() -> None:
    tried = ", ".join(map(str, folders())) or "there is no home directory"
    logger.warning(
        "compiled kernels cannot be kept (%s), so each start compiles them again; set PUMICE_CACHE to a usable folder",
        tried,
    )


def folders() -> list[Path]:
    """Return the cache folders to try, in order.

    ``$PUMICE_CACHE`` alone if it is set; else the user's cache folder, then a folder of the user among temporary files.
    A confined process reads the user's folder but writes to one that only confined processes read. Folders writable by
    other users are left out, since code is loaded from them.
    """
    # Not cached itself: the environment changes where a process is confined.
    return _folders(stated_cache(), tuple(_homes()))


@functools.cache
def _folders(stated: str | None, homes: tuple[Path, ...]) -> list[Path]:
    if stated:
        return [*filter(is_safe, [Path(stated), *homes[1:]])]
    folders = [*filter(is_safe, homes)]
    if temporary := temporary_folder("pumice-kernels"):
        folders.append(temporary)
    return folders


def _homes() -> list[Path]:
    """Return the folders of kernels in the user's cache folders."""
    base = os.environ.get("LOCALAPPDATA", "")
    if sys.platform == "win32" and os.path.isabs(base):
        return [Path(base) / "pumice" / "kernels"]
    try:
        return [home / "pumice" / "kernels" for home in cache_homes()]
    except RuntimeError:  # the user has no home directory
        return []


def _file_name(name: str) -> str:
    key = f"{_versions()} {current().name} {name}".encode()
    digest = hashlib.blake2b(key, digest_size=sources.DIGEST_BYTES)
    return f"{digest.hexdigest()}.kernel"


@functools.cache
def _versions() -> str:
    packages = [importlib.metadata.version(package) for package in ("numba", "llvmlite")]
    return " ".join([sources.digest(), *packages, sys.platform])


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=sources.DIGEST_BYTES).digest()
