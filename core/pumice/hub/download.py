"""Download a file over HTTP: resumable, by one process at a time, and checked before it gets its name."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from pumice.errors import GGUFError, HubError
from pumice.gguf.parser import MAGIC, parse

if TYPE_CHECKING:
    import httpx2

    from pumice.hub.client import HubClient

DownloadProgress = Callable[[str, int, int], None]  # called with the file's name, bytes done, total bytes

_LOCK_SECONDS = 0.5  # interval of checking another process's progress
_CHUNK = 1 << 22  # bytes read at once to check a file
_REPORT = 1 << 18  # bytes between two reports of progress
_TRIES = 6  # consecutive connections that bring nothing
_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 1.0, 30.0  # between two of them; the latter limits the server's Retry-After
_SLOW_SECONDS, _SLOW_BYTES = 60.0, 1 << 12  # a download with fewer bytes in that time is aborted
_BUSY = {408, 425, 429, 500, 502, 503, 504}  # statuses after which a request is repeated
_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)")
_logger = logging.getLogger("pumice")


@dataclass(frozen=True)
class Remote:
    """A file to fetch: its address and expected properties.

    Args:
        size: size in bytes; None if unknown.
        checksum: hexadecimal SHA-256 of the content, or git's SHA-1 of a blob; empty if unknown.
        validator: ETag or date of the content; empty if unknown.
    """

    url: str
    size: int | None = None
    checksum: str = ""
    validator: str = ""
    headers: Mapping[str, str] | None = None


class UselessError(HubError):
    """The received data is not the file, and was deleted."""


class ChangedError(UselessError):
    """The file at the address changed during the download."""


class _BrokenError(Exception):
    """A connection ended early; another one may be tried after ``seconds``."""

    def __init__(self, reason: str, seconds: float = _PAUSE_SECONDS) -> None:
        super().__init__(reason)
        self.seconds = seconds


def download(client: HubClient, remote: Remote, target: Path, lock: Path, report: Callable[[int], None]) -> None:
    """Fetch ``remote`` to ``target`` unless it exists.

    The data is written to ``target`` with the suffix ``.incomplete`` until it is complete and its checksum matches. If
    the connection ends, the next call resumes from there. A second process waits for the first.

    Args:
        client: HTTP client.
        remote: file to fetch.
        target: path of the file.
        lock: path of the lock between processes.
        report: called with the bytes done.

    Raises:
        HubError: the download failed; ChangedError if the file changed meanwhile. Errors of ``httpx2`` and of the file
            system are raised as they are.
    """
    from pumice.hub.xet import fetch_by_xet, is_too_large

    if _is_there(remote, target, report):  # before the lock, since the cache may be read-only
        return
    partial = target.with_name(f"{target.name}.incomplete")
    for directory in (target.parent, lock.parent):
        directory.mkdir(parents=True, exist_ok=True)

    def wait() -> None:
        client.abort.check()
        report(_size(partial))

    with locked(lock, wait):
        if _is_there(remote, target, report):
            return
        _logger.info("downloading %s to %s", remote.url, target)
        try:
            if remote.checksum and remote.size and is_too_large(remote.size):
                fetch_by_xet(client, remote.url, remote.size, remote.headers or {}, partial, report)
            else:
                Transfer(client, remote, partial, report).run()
            _check(remote, partial)
        except (UselessError, OSError) as error:
            if isinstance(error, UselessError) or error.errno == errno.EIO:  # the data on the disk is unreliable
                partial.unlink(missing_ok=True)
            raise
        os.replace(partial, target)


def content_range(value: str) -> int:
    """Return the first byte that a header ``Content-Range`` names; -1 if it is invalid."""
    part = _CONTENT_RANGE.fullmatch(value)
    return int(part[1]) if part else -1


def validator_of(headers: Mapping[str, str]) -> str:
    """Return the validator of a response: its ETag, else its date; empty without either."""
    return headers.get("ETag", "") or headers.get("Last-Modified", "")


class Transfer:
    """Transfers one file, over as many connections as necessary."""

    def __init__(self, client: HubClient, remote: Remote, partial: Path, report: Callable[[int], None]) -> None:
        self._client = client
        self._remote = remote
        self._partial = partial
        self._report = report
        self._validator = remote.validator
        self._ranges = True  # the server supports range requests
        self._since, self._came = time.monotonic(), 0  # start of the interval, and bytes received in it

    def run(self) -> None:
        """Fetch the missing bytes, reconnecting as long as connections bring some."""
        import httpx2

        tries = _TRIES
        while True:
            before = _size(self._partial)
            try:
                self._fetch()
                return
            except (httpx2.TransportError, _BrokenError) as error:
                self._client.abort.check()
                after = _size(self._partial)
                tries = _TRIES if after > before else tries - 1
                if not tries:
                    if isinstance(error, _BrokenError):
                        raise HubError(f"{self._remote.url}: {error}; try again, the received part is kept") from None
                    raise
                seconds = error.seconds if isinstance(error, _BrokenError) else _PAUSE_SECONDS
                _logger.info("%s: %s; trying to resume at byte %d", self._remote.url, error or "timeout", after)
                self._client.abort.sleep(seconds)

    def _fetch(self) -> None:
        """Fetch over one connection. Raises _BrokenError if bytes are missing."""
        have = self._have()
        if have and have == self._remote.size:
            return
        headers = dict(self._remote.headers or {})
        if have:
            headers["Range"] = f"bytes={have}-"
            if self._validator.isascii() and self._validator and not self._validator.startswith("W/"):
                headers["If-Range"] = self._validator  # weak or unsendable validators are only compared in the response
        with self._client.stream("GET", self._remote.url, headers) as response:
            start, size = self._read_headers(response, have)
            self._partial.touch()
            with self._partial.open("r+b") as file:
                file.truncate(start)
                file.seek(start)
                end = self._write(response, file, start, size)
                file.flush()
                os.fsync(file.fileno())
        if size is not None and end < size:
            raise _BrokenError(f"received {end:,} of {size:,} bytes")

    def _have(self) -> int:
        """Return the number of usable bytes of earlier connections."""
        have, size = _size(self._partial), self._remote.size
        same = self._remote.checksum or self._validator  # without either, the rest may belong to another file
        return have if same and self._ranges and have >= len(MAGIC) and (size is None or have <= size) else 0

    def _read_headers(self, response: httpx2.Response, have: int) -> tuple[int, int | None]:
        """Return the position of the body in the file, and the size of the file."""
        from pumice.hub.client import raise_for_status, refuse_encoding

        status, url = response.status_code, self._remote.url
        if status in _BUSY:
            raise self._busy(response)
        if status == 416 and have:
            self._ranges = False
            raise _BrokenError("the server cannot continue this file")
        raise_for_status(response)
        if status not in (200, 206) or (status == 206 and not have):
            raise HubError(f"{url}: the server responds with status {status} instead of the file")
        refuse_encoding(response)
        self._compare(validator_of(response.headers))
        length = response.headers.get("Content-Length", "")
        start, size = 0, int(length) if length.isdecimal() and len(length) <= 18 else None
        if status == 206:
            part = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
            if not part or int(part[1]) != have:
                self._ranges = False
                raise _BrokenError("the server sent a different part of the file than requested")
            start, size = have, None if part[3] == "*" else int(part[3])
        if self._remote.size is not None and size not in (None, self._remote.size):
            raise ChangedError(f"{url}: the file has {size:,} bytes, expected {self._remote.size:,}; try again")
        return start, self._remote.size if size is None else size

    def _compare(self, validator: str) -> None:
        """Raise ChangedError unless the validator matches; a checksum is compared at the end."""
        if not self._remote.checksum and self._validator and validator != self._validator:
            raise ChangedError(f"{self._remote.url}: the file changed during the download; try again")
        self._validator = self._validator or validator

    def _busy(self, response: httpx2.Response) -> _BrokenError:
        after = response.headers.get("Retry-After", "")
        seconds = float(after) if after.isdecimal() and len(after) < 9 else _PAUSE_SECONDS
        return _BrokenError(status_line(response.status_code), min(seconds, _MAX_PAUSE_SECONDS))

    def _write(self, response: httpx2.Response, file: BinaryIO, start: int, size: int | None) -> int:
        """Append the body and return its end. Raises UselessError if it is no GGUF file or longer than announced."""
        end = reported = start
        head = b""
        for chunk in response.iter_raw():
            self._client.abort.check()
            self._pace(len(chunk))
            if start == 0 and len(head) < len(MAGIC):
                head += chunk[: len(MAGIC)]
                if not (head.startswith(MAGIC) or MAGIC.startswith(head)):
                    raise _no_gguf(self._remote.url, head)
            if size is not None and end + len(chunk) > size:
                raise UselessError(f"{self._remote.url}: received more than the file's {size:,} bytes; try again")
            file.write(chunk)
            end += len(chunk)
            if end - reported >= _REPORT:
                reported = end
                self._report(end)
        self._report(end)
        return end

    def _pace(self, n_bytes: int) -> None:
        """Raise HubError if the download is too slow, which no timeout of a socket detects."""
        self._came += n_bytes
        now = time.monotonic()
        if now - self._since < _SLOW_SECONDS:
            return
        if self._came < _SLOW_BYTES:
            raise HubError(f"{self._remote.url}: the download is too slow; try again, the received part is kept")
        self._since, self._came = now, 0


def reporter(progress: DownloadProgress | None, what: str, before: int, total: int) -> Callable[[int], None]:
    """Return a function that reports one file's bytes as part of ``total``; ``before`` bytes precede it."""
    return lambda n_bytes: progress(what, before + n_bytes, total) if progress else None


def check_space(directory: Path, n_bytes: int) -> None:
    """Raise HubError if the disk of ``directory``, which need not exist, has less than ``n_bytes`` free."""
    existing = next(path for path in (directory, *directory.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    if n_bytes > free:
        raise HubError(f"{directory}: the disk is full: {n_bytes:,} bytes are needed, but only {free:,} are free")


def _is_there(remote: Remote, target: Path, report: Callable[[int], None]) -> bool:
    if not target.exists():
        return False
    report(remote.size or _size(target))
    return True


def _check(remote: Remote, partial: Path) -> None:
    """Raise UselessError if the data is not the file."""
    with partial.open("rb") as file:
        magic = file.read(len(MAGIC))
    if magic != MAGIC:
        raise _no_gguf(remote.url, magic)
    if not remote.checksum:
        _logger.info("%s: complete; not verified further, since the source has no checksum", remote.url)
        _check_whole(remote, partial)
        return
    sha256 = len(remote.checksum) == 64
    digest = hashlib.sha256() if sha256 else hashlib.sha1(b"blob %d\0" % _size(partial), usedforsecurity=False)
    with partial.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    if digest.hexdigest() != remote.checksum:
        raise UselessError(
            f"{remote.url}: the download was damaged in transit and is deleted: "
            f"its {'SHA-256' if sha256 else 'git SHA-1'} is {digest.hexdigest()}, expected {remote.checksum}; try again"
        )


def _check_whole(remote: Remote, partial: Path) -> None:
    """Raise UselessError if a file is shorter than its header requires."""
    try:
        parse(partial)
    except GGUFError as error:
        raise UselessError(
            f"{remote.url}: the received file is incomplete and is deleted: {error}; try again"
        ) from None


def _no_gguf(url: str, head: bytes) -> UselessError:
    return UselessError(f"{url}: not a GGUF file; it begins with {head!r}")


@contextlib.contextmanager
def locked(lock: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold a lock between processes; ``waiting`` is called while another process holds it."""
    from filelock import Timeout
    from huggingface_hub.utils import WeakFileLock

    with contextlib.ExitStack() as stack:
        is_logged = False
        while True:
            try:
                stack.enter_context(WeakFileLock(lock, timeout=_LOCK_SECONDS))
                break
            except Timeout:
                if not is_logged:
                    _logger.info("waiting for another process that downloads the same file")
                    is_logged = True
                waiting()
        yield


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def status_line(status: int) -> str:
    """Describe the status of a response, and what to do."""
    reasons = {
        401: "access denied (401): the token in HF_TOKEN is wrong or out of date",
        403: "access forbidden (403): the token in HF_TOKEN has no right to read it",
        404: "no such file (404)",
        429: "too many requests (429); wait a few minutes, or set HF_TOKEN",
    }
    return reasons.get(status, f"the server failed ({status}); try again later")


def explain_os_error(error: OSError, where: object) -> str:
    """Describe an error of the file system during a download in one line."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{where}: the disk is full"
    return f"{where}: cannot write it: {error.strerror or error}"
