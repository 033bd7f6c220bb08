"""One file over HTTP: resumed where it was cut, by one process at a time, checked, and only then under its name."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pumice.errors import HubError
from pumice.gguf.parser import MAGIC

Progress = Callable[[str, int, int], None]  # what is fetched, bytes done, bytes in all

_LOCK_SECONDS = 0.5  # seconds between two looks at what another process has fetched
_CHUNK = 1 << 22  # bytes read at once to check a file
_logger = logging.getLogger("pumice")


@dataclass(frozen=True)
class Remote:
    """A file to fetch: its address and what is known of it."""

    url: str
    size: int | None = None  # bytes
    sha256: str = ""  # hexadecimal, or empty: not known
    headers: Mapping[str, str] | None = None


def download(remote: Remote, target: Path, lock: Path, report: Callable[[int], None]) -> None:
    """Fetch ``remote`` to ``target`` unless it is there; ``report`` is called with the bytes done.

    What is fetched lies in ``target`` with ``.incomplete`` added until all of it is there and its checksum right. It
    stays there if the connection ends, and the next call goes on from its end. A second process waits for the first.
    Raises HubError, or the errors of ``httpx2`` and of the file system.
    """
    partial = target.with_name(f"{target.name}.incomplete")
    for directory in (target.parent, lock.parent):
        directory.mkdir(parents=True, exist_ok=True)
    with _locked(lock, lambda: report(_size(partial))):
        if target.exists():
            report(remote.size or _size(target))
            return
        _logger.info("downloading %s to %s", remote.url, target)
        _fetch(remote, partial, report)
        _check(remote, partial)
        os.replace(partial, target)


def reporter(progress: Progress | None, what: str, before: int, total: int) -> Callable[[int], None]:
    """Reports the bytes of one file as those of all of ``total``: ``before`` came before it."""
    return lambda n_bytes: progress(what, before + n_bytes, total) if progress else None


def check_space(directory: Path, n_bytes: int) -> None:
    """Raise HubError if ``n_bytes`` more do not fit where ``directory`` is, or will be."""
    existing = next(path for path in (directory, *directory.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    if n_bytes > free:
        raise HubError(f"{directory}: the disk is full: {n_bytes:,} bytes are needed and {free:,} are free")


def _fetch(remote: Remote, partial: Path, report: Callable[[int], None]) -> None:
    """Fetch what is missing of ``partial``; a connection that breaks is made again while it brings something."""
    import httpx2
    from huggingface_hub.file_download import http_get

    if remote.size is not None and _size(partial) > remote.size:
        partial.unlink()
    while True:
        start = _size(partial)
        try:
            with partial.open("ab") as file, _own_log("huggingface_hub.file_download"):
                http_get(
                    remote.url,
                    file,
                    resume_size=start,
                    headers=dict(remote.headers or {}),
                    expected_size=remote.size,
                    tqdm_class=_bar_class(report),
                )
            return
        except (httpx2.ReadError, httpx2.RemoteProtocolError):
            if _size(partial) <= start:
                raise
        except OSError as error:
            if error.errno is not None:
                raise
            have, size = _size(partial), remote.size
            if size is not None and have > size:
                partial.unlink()
            raise HubError(f"{remote.url}: {have:,} bytes came instead of {size:,}; try again to resume") from None


def _check(remote: Remote, partial: Path) -> None:
    with partial.open("rb") as file:
        magic = file.read(4)
    if magic != MAGIC:
        partial.unlink()
        raise HubError(f"{remote.url}: no GGUF file is there; what came begins with {magic!r}")
    if not remote.sha256:
        return
    digest = hashlib.sha256()
    with partial.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    if digest.hexdigest() != remote.sha256:
        partial.unlink()
        raise HubError(
            f"{remote.url}: the download was damaged on its way and is deleted: its SHA-256 is {digest.hexdigest()}, "
            f"expected {remote.sha256}; try again"
        )


@contextlib.contextmanager
def _locked(lock: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold a lock between processes; ``waiting`` is called while another has it."""
    from filelock import Timeout
    from huggingface_hub.utils import WeakFileLock

    with contextlib.ExitStack() as stack:
        told = False
        while True:
            try:
                stack.enter_context(WeakFileLock(lock, timeout=_LOCK_SECONDS))
                break
            except Timeout:
                if not told:
                    _logger.info("waiting for another process that downloads the same file")
                    told = True
                waiting()
        yield


@contextlib.contextmanager
def _own_log(name: str) -> Iterator[None]:
    """What another library would warn of goes to Pumice's log: it is no failure yet."""

    def forward(record: logging.LogRecord) -> bool:
        _logger.info("%s", " ".join(record.getMessage().split()))
        return False

    logger = logging.getLogger(name)
    logger.addFilter(forward)
    try:
        yield
    finally:
        logger.removeFilter(forward)


def _bar_class(report: Callable[[int], None]) -> Any:
    """What ``http_get`` takes for a progress bar of tqdm."""

    class Bar:
        def __init__(self, initial: int = 0, **_: Any) -> None:
            self._done = initial

        def __enter__(self) -> Bar:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def update(self, n: int) -> None:
            self._done += n
            report(self._done)

    return Bar


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def explain_os_error(error: OSError, where: object) -> str:
    """One line for an error of the file system while something is downloaded."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{where}: the disk is full"
    return f"{where}: cannot write it: {error.strerror or error}"
