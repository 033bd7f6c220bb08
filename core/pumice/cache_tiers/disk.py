"""The tier on disk: a file per entry in a folder, which survives the process and serves others of the same user."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import re
import secrets
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pumice.cache_files import TEMPORARY, create_file, is_private, read_file, write_file
from pumice.cache_tiers.entry import Entry, Tally, eviction_order
from pumice.cache_tiers.files import HEADER_BYTES, MAGIC, SECRET_BYTES, decode, encode
from pumice.errors import ConfigError

logger = logging.getLogger("pumice")

Bytes = NDArray[np.uint8]

_FOLDER = re.compile("[0-9a-f]{2}")  # start of the key
_NAME = re.compile(r"([0-9a-f]{62})-([0-9]{1,12})-([0-9]{1,12})")  # rest of the key, n_past, n_tokens
_SECRET = "secret"
_MOST_QUEUED = 256 * 2**20  # bytes that wait to be written
_KEPT = 0.9  # share of the limit that an eviction leaves
_COUNTED_AGAIN = 0.1  # share of the limit after whose writing the folder is counted again, as others write there
_LEAST_FREE = 2**30  # bytes that stay free on the disk
_OLD = 3600.0  # seconds after which a temporary file was left by a process that was killed


class _Stored(NamedTuple):
    path: str
    n_bytes: int
    order: tuple[float, int]


class DiskTier:
    """Entries in a folder of at most ``limit`` bytes, written by a thread.

    Only this user's own regular files are read, and only complete and unchanged ones (``files.py``). A file appears
    under its name when it is complete, so that a killed process loses only what it had not written. ``option`` is the
    option that names the folder.

    Attributes:
        works: False once nothing more is written, since an error has ended that.
        problem: Reason why the last entry was not written; empty if it was.

    Raises:
        ConfigError: The folder cannot be used.
    """

    def __init__(self, folder: Path, limit: int, option: str = "cache_disk") -> None:
        self.tally = Tally(limit_bytes=limit)
        self._folder = folder
        self._limit = limit
        self._option = option
        self._bad: set[bytes] = set()  # keys of entries that must not be read again
        self._queue: queue.SimpleQueue[tuple[Entry, Bytes] | Entry | threading.Event | None] = queue.SimpleQueue()
        self._queued = 0  # bytes in the queue
        self._room = threading.Condition()
        self._total = self._uncounted = 0
        self._has_warned = False
        self.problem = ""
        self._found_damage = False
        self.works = True
        check_folder(folder, option)
        self._secret = _secret_of(folder, option)
        self._thread = threading.Thread(target=self._write_all, name="pumice-cache-disk", daemon=True)
        self._thread.start()

    # --- in the engine's thread

    def has(self, entry: Entry) -> bool:
        """Return True if a file of the right size is there."""
        if entry.key in self._bad:
            return False
        try:
            return os.lstat(self._path(entry)).st_size == HEADER_BYTES + entry.n_bytes
        except OSError:
            return False

    def needs(self, entry: Entry) -> bool:
        """Return True if an entry is to be written: without its file, or, after a damaged one, if it is damaged too."""
        return not self.has(entry) or (self._found_damage and self._read(entry) is None)

    def get(self, entry: Entry) -> Bytes | None:
        """Return the bytes of an entry, which counts as used; None without it, or if its file is damaged."""
        data = self._read(entry)
        if data is None:
            return None
        self._queue.put(entry)
        self.tally.n_loaded += 1
        return np.frombuffer(data, np.uint8)

    def _read(self, entry: Entry) -> memoryview | None:
        """Return the bytes of an entry; None without it, or if its file is damaged, which is removed then."""
        path = self._path(entry)
        try:
            content = read_file(Path(path), HEADER_BYTES + entry.n_bytes)
        except FileNotFoundError:  # evicted by another process
            return None
        except OSError:
            data = None
        else:
            data = decode(content, entry.key, entry.n_bytes, self._secret)
        if data is None:
            self._found_damage = True
            self._bad.add(entry.key)
            self.tally.n_refused += 1
            with contextlib.suppress(OSError):
                os.unlink(path)
        return data

    def put(self, entry: Entry, data: Bytes) -> bool:
        """Queue an entry to be written; return False if too much is queued. ``data`` must not change."""
        with self._room:
            if self._queued and self._queued + entry.n_bytes > _MOST_QUEUED:
                return False
            self._queued += entry.n_bytes
        self._bad.discard(entry.key)
        self._queue.put((entry, data))
        return True

    def wait(self, seconds: float, empty: bool = False) -> bool:
        """Wait until more can be queued, or until all is written; return False if it takes longer."""
        most = 0 if empty else _MOST_QUEUED // 2
        with self._room:
            return self._room.wait_for(lambda: self._queued <= most, seconds)

    def flush(self, flushed: threading.Event) -> None:
        """Set ``flushed`` once everything that was queued before is written, or refused."""
        self._queue.put(flushed)

    def close(self, seconds: float) -> None:
        """Write what is queued, for at most this long, and end the thread."""
        self.wait(seconds, empty=True)
        self.works = False
        self._queue.put(None)
        self._thread.join(seconds)

    def _path(self, entry: Entry) -> str:
        name = entry.key.hex()
        return f"{self._folder}/{name[:2]}/{name[2:]}-{entry.n_past}-{entry.n_tokens}"

    # --- in the writing thread

    def _write_all(self) -> None:
        with self._ending():
            self._count()
        while (item := self._queue.get()) is not None:
            if isinstance(item, threading.Event):
                item.set()
                continue
            if isinstance(item, Entry):
                self._touch(item)
                continue
            if self.works:
                with self._ending():
                    self._write(*item)
            with self._room:
                self._queued -= item[0].n_bytes
                self._room.notify_all()

    @contextlib.contextmanager
    def _ending(self) -> Iterator[None]:
        """On an error, write nothing more."""
        try:
            yield
        except (OSError, MemoryError) as error:
            self.works = False
            reason = "out of memory" if isinstance(error, MemoryError) else error.strerror or error
            self.problem = f"{self._option}: {self._folder} cannot be written: {reason}"
            logger.warning("%s; no more prompts are stored: make room, and load the model again", self.problem)

    def _write(self, entry: Entry, data: Bytes) -> None:
        """Write an entry unless it is there; evict others for it if needed."""
        size = HEADER_BYTES + entry.n_bytes
        if not self.needs(entry):
            self._touch(entry)
            return
        if self._total + size > self._limit or self._uncounted > _COUNTED_AGAIN * self._limit:
            self._count(size)
        path = Path(self._path(entry))
        if self._total + size > self._limit or not self._has_space(size) or not is_private(path.parent):
            self._refuse(size)
            return
        write_file(path, encode(entry.key, data.data, self._secret))
        self._total += size
        self._uncounted += size
        self.tally.n_bytes = self._total
        self.tally.n_entries += 1
        self.tally.n_saved += 1
        self.problem = ""

    def _refuse(self, size: int) -> None:
        """Count an entry that is not written, and log the reason once."""
        self.tally.n_refused += 1
        if not self._has_space(size):
            reason = f"less than {_LEAST_FREE >> 30} GiB of the disk is free"
        elif self._total + size > self._limit:
            reason = "cache_disk_limit is too small for one"
        else:
            reason = "a folder in it is not private to you"
        self.problem = f"{self._option}: {self._folder}: prompts are not stored while {reason}"
        if not self._has_warned:
            self._has_warned = True
            logger.warning("%s", self.problem)

    def _has_space(self, size: int) -> bool:
        space = os.statvfs(self._folder) if hasattr(os, "statvfs") else None
        return space is None or space.f_bavail * space.f_frsize > size + _LEAST_FREE

    def _touch(self, entry: Entry) -> None:
        """Make a file the newest by writing its first bytes again; a confined process may not set its time."""
        flags = os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        with contextlib.suppress(OSError):
            file = os.open(self._path(entry), flags)
            try:
                os.write(file, MAGIC)
            finally:
                os.close(file)

    def _count(self, size: int = 0) -> None:
        """Count the folder's entries, and evict some if ``size`` more bytes would exceed the limit."""
        stored = list(self._stored())
        total, n_entries = sum(item.n_bytes for item in stored), len(stored)
        if total + size > self._limit:
            for item in sorted(stored, key=lambda item: item.order, reverse=True):
                if total + size <= _KEPT * self._limit:
                    break
                with contextlib.suppress(OSError):
                    os.unlink(item.path)
                    total, n_entries = total - item.n_bytes, n_entries - 1
                    self.tally.n_evicted += 1
        self._total, self._uncounted = total, 0
        self.tally.n_bytes, self.tally.n_entries = total, n_entries

    def _stored(self) -> Iterator[_Stored]:
        """Yield the entries in the folder; remove temporary files that a killed process has left.

        Ages are those when the newest file was written, since clocks jump.
        """
        files = list(self._files())
        newest = max((status.st_mtime for _, status in files), default=0.0)
        for path, status in files:
            name, age = _NAME.fullmatch(os.path.basename(path)), newest - status.st_mtime
            if name:
                order = eviction_order(status.st_size, int(name[3]), int(name[2]), age)
                yield _Stored(path, status.st_size, order)
            elif TEMPORARY.fullmatch(os.path.basename(path)) and age > _OLD:
                with contextlib.suppress(OSError):
                    os.unlink(path)

    def _files(self) -> Iterator[tuple[str, os.stat_result]]:
        with contextlib.suppress(OSError), os.scandir(self._folder) as folders:
            for folder in folders:
                if not _FOLDER.fullmatch(folder.name) or folder.is_symlink():
                    continue
                with contextlib.suppress(OSError), os.scandir(folder.path) as files:
                    for file in files:
                        with contextlib.suppress(OSError):
                            yield file.path, file.stat(follow_symlinks=False)


def check_folder(folder: Path, option: str) -> None:
    """Create the folder that an option names if it is missing. Raises ConfigError if it is not this user's own."""
    with contextlib.suppress(OSError):
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not is_private(folder):
        raise ConfigError(
            f"{option}: {folder} must be a folder that belongs to you and that nobody else can write to; "
            "choose another one, or chmod 700 it"
        )


def _secret_of(folder: Path, option: str) -> bytes:
    """Return the folder's secret, made by the process that first uses it. Raises ConfigError.

    One that cannot be read now stays: with another one all entries would be lost.
    """
    path = folder / _SECRET
    reason = ""
    for _ in range(3):
        try:
            if not os.path.lexists(path):
                create_file(path, secrets.token_bytes(SECRET_BYTES))  # with two, processes would remove each other's
            elif path.lstat().st_size != SECRET_BYTES:
                write_file(path, secrets.token_bytes(SECRET_BYTES))
            secret = read_file(path, SECRET_BYTES)
            if len(secret) == SECRET_BYTES:
                return secret
        except OSError as error:
            reason = f": {(error.strerror or str(error)).lower()}"
    raise ConfigError(f"{option}: {path} cannot be read or written{reason}; choose another folder")
