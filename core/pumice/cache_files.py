"""Cache folders and their files, which are used only if no other user can have written them."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import secrets
import stat
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

logger = logging.getLogger("pumice")

PRIVATE = 0o600
TEMPORARY = re.compile(r"\.[0-9a-f]{16}")
"""Names of files that are being written; a killed process leaves them."""

_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)  # a FIFO without a writer is no wait
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)


def stated_cache() -> str | None:
    """Return ``$PUMICE_CACHE``, the folder of compiled kernels that the user names, or None."""
    return os.environ.get("PUMICE_CACHE") or None


def is_safe(folder: Path) -> bool:
    """Return True if only the user and root can write to a folder, or if it does not exist yet; else log a warning."""
    try:
        safe = _is_owned(folder.stat())
    except OSError:
        return True
    if not safe:
        logger.warning("ignoring cache %s: other users can write to it; chmod 700 or chown it", folder)
    return safe


def is_private(folder: Path) -> bool:
    """Return True if a folder, created if missing, belongs to this user and no other user can write to it."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022


def temporary_folder(name: str) -> Path | None:
    """Return the private folder ``NAME-UID`` among the temporary files, created if missing; None if there is none."""
    if not hasattr(os, "getuid"):
        return None
    with contextlib.suppress(FileNotFoundError):  # no writable folder for temporary files
        folder = Path(tempfile.gettempdir()) / f"{name}-{os.getuid()}"
        return folder if is_private(folder) else None
    return None


def read_file(path: Path, most: int) -> bytes:
    """Return the content of a file of at most ``most`` bytes.

    Raises OSError if it is larger, a link or no regular file, or if other users can write to it.
    """
    try:
        return read_regular(path, most, _NOFOLLOW, _is_owned)
    except ValueError as error:
        raise OSError(f"{path}: {error}") from None


def read_regular(
    path: Path, most: int, flags: int = 0, is_allowed: Callable[[os.stat_result], bool] = lambda status: True
) -> bytes:
    """Return the content of a regular file of at most ``most`` bytes.

    Args:
        path: the file.
        most: maximum size in bytes.
        flags: further flags of ``os.open``.
        is_allowed: True for the status of a file that may be read.

    Raises:
        OSError: the file cannot be opened or read.
        ValueError: it is no regular file, larger, or not allowed.
    """
    with open(os.open(path, _READ | flags), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("not a regular file")
        if not is_allowed(status):
            raise ValueError("not a regular file of this user")
        content = file.read(most + 1) or b""  # None if a file of the kernel would block
    if len(content) > most:
        raise ValueError(f"more than {most} bytes")
    return content


def write_file(path: Path, content: bytes, mode: int = PRIVATE) -> None:
    """Write a file atomically, with these permissions; its folder is created if missing. Raises OSError.

    A confined process may not change permissions, so that it can write private files only.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_file(path, content, mode)


def create_file(path: Path, content: bytes, mode: int = PRIVATE) -> None:
    """Write a file atomically, unless it exists: the first of several processes writes it. Raises OSError."""
    with _written(path, content, mode) as temporary:
        try:
            os.link(temporary, path)
        except FileExistsError:
            pass
        except OSError:  # a file system without links
            os.replace(temporary, path)


def replace_file(path: Path, content: bytes, mode: int | None = None) -> None:
    """Write a file atomically. ``mode``: its permissions; None leaves them to the umask. Raises OSError."""
    with _written(path, content, mode) as temporary:
        os.replace(temporary, path)


def temporary_of(path: Path) -> Path:
    """Return a new name beside a file, for what takes its place; it matches ``TEMPORARY``."""
    return path.with_name(f".{secrets.token_hex(8)}")


@contextlib.contextmanager
def _written(path: Path, content: bytes, mode: int | None) -> Iterator[Path]:
    """Write a file under a temporary name beside ``path``, and remove it at the end unless it was renamed."""
    temporary = temporary_of(path)
    try:
        with open(temporary, "xb", opener=partial(os.open, mode=0o666 if mode is None else PRIVATE)) as file:
            file.write(content)
        if mode not in (None, PRIVATE):
            os.chmod(temporary, mode)
        yield temporary
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def _is_owned(status: os.stat_result) -> bool:
    """Return True if only this user and root can write; on systems without users' numbers always."""
    return not hasattr(os, "getuid") or (status.st_uid in (os.getuid(), 0) and not status.st_mode & 0o022)
