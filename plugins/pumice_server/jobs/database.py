"""The tables of files and batches: statements, changes, and the room that each owner has."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from starlette.exceptions import HTTPException

import pumice
from pumice_server.database import open_database
from pumice_server.errors import UnwritableError
from pumice_server.pools import share

MAX_BYTES = 1 << 28  # of all files and results

_VERSION = 2  # of the schema
_SCHEMA = """
CREATE TABLE batch (
    id TEXT PRIMARY KEY, owner TEXT NOT NULL, input TEXT NOT NULL, created_at INTEGER NOT NULL,
    is_finished INTEGER NOT NULL, body TEXT NOT NULL
);
CREATE TABLE file (
    id TEXT PRIMARY KEY, owner TEXT NOT NULL, filename TEXT NOT NULL, purpose TEXT NOT NULL,
    created_at INTEGER NOT NULL, expires_at INTEGER NOT NULL, bytes INTEGER NOT NULL
);
CREATE TABLE part (
    file TEXT NOT NULL REFERENCES file (id) ON DELETE CASCADE, number INTEGER NOT NULL,
    content BLOB NOT NULL, PRIMARY KEY (file, number)
);
CREATE TABLE result (
    batch TEXT NOT NULL REFERENCES batch (id) ON DELETE CASCADE, custom_id TEXT NOT NULL,
    is_failed INTEGER NOT NULL, line BLOB NOT NULL, PRIMARY KEY (batch, custom_id)
);
"""


class JobDatabase:
    """The database of a ``JobStore``, which one server has at a time.

    ``read`` and ``changing`` hold ``lock``; the other methods are for callers that hold it.
    """

    def __init__(self, path: Path) -> None:
        """Open or create the database. Raises PumiceError if the file cannot be used."""
        self.lock = threading.Lock()
        self._process_lock = FileLock(path.with_name(f"{path.name}.lock"), timeout=0, thread_local=False)
        try:
            self._process_lock.acquire()
        except Timeout:
            raise pumice.PumiceError(
                f"{path} is used by another server: end that one, or leave out --batches"
            ) from None
        except OSError as error:
            raise pumice.PumiceError(f"batches cannot be kept in {path}: {error.strerror}") from None
        self._connection = open_database(path, _SCHEMA, _VERSION, ["batch", "file", "part", "result"], "batches")
        self._sizes = self._measured()  # bytes of files and results by owner

    def close(self) -> None:
        with self.lock:
            self._connection.close()
        self._process_lock.release()

    def read(self, statement: str, *values: str | int) -> Sequence[Any]:
        """Return the rows of a statement."""
        with self.lock:
            return self.run(statement, *values)

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Hold the database for a change that happens as a whole. Raises UnwritableError if the disk is full."""
        with self.lock:
            sizes = dict(self._sizes)
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield
                self._connection.execute("COMMIT")
            except BaseException as error:
                self._sizes = sizes
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                if isinstance(error, sqlite3.Error):
                    raise UnwritableError("batches", error) from None
                raise

    def run(self, statement: str, *values: str | int | bytes) -> Sequence[Any]:
        return self.execute(statement, *values).fetchall()

    def execute(self, statement: str, *values: str | int | bytes) -> sqlite3.Cursor:
        return self._connection.execute(statement, values)

    def delete(self, rows: str, *values: str | int) -> None:
        """Delete rows of a table, and measure again if there were any."""
        if self.execute(f"DELETE FROM {rows}", *values).rowcount:
            self._sizes = self._measured()

    def check_room(self, owner: str, n_bytes: int) -> None:
        """Raise HTTPException if files and results of an owner would take too much."""
        own = self._sizes.get(owner, 0)
        most = share(MAX_BYTES, owner, sum(self._sizes.values()) - own)
        if own + n_bytes > most:
            raise HTTPException(507, f"files and results would have more than {most} bytes; delete others")

    def count(self, owner: str, n_bytes: int) -> None:
        """Count bytes that an owner has more."""
        self._sizes[owner] = self._sizes.get(owner, 0) + n_bytes

    def _measured(self) -> dict[str, int]:
        files = "SELECT owner, bytes FROM file"
        results = "SELECT batch.owner, LENGTH(line) FROM result JOIN batch ON batch.id = result.batch"
        return dict(self.run(f"SELECT owner, SUM(bytes) FROM ({files} UNION ALL {results}) GROUP BY owner"))
