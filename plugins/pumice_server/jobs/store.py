"""The database of files and batches, which outlives the server: ``pumice serve --batches``."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import orjson
from filelock import FileLock, Timeout
from starlette.exceptions import HTTPException

import pumice
from pumice_server.database import open_database

MAX_FILES = 1000
MAX_BYTES = 1 << 28  # of all files and results: one batch may have all of them, and its file is made in memory
MAX_BATCHES = 1000
MAX_WAITING = 100  # batches that are not finished
MAX_AGE = 30 * 86_400  # seconds that a file and a finished batch are kept
BATCH_SECONDS = 86_400  # that a batch may take

FINISHED = ("completed", "failed", "expired", "cancelled")
_VERSION = 1  # of the schema
_SCHEMA = """
CREATE TABLE batch (id TEXT PRIMARY KEY, owner TEXT NOT NULL, is_finished INTEGER NOT NULL, body TEXT NOT NULL);
CREATE TABLE file (
    id TEXT PRIMARY KEY, owner TEXT NOT NULL, filename TEXT NOT NULL, purpose TEXT NOT NULL,
    created_at INTEGER NOT NULL, expires_at INTEGER NOT NULL, bytes INTEGER NOT NULL, content BLOB NOT NULL
);
CREATE TABLE result (
    batch TEXT NOT NULL REFERENCES batch (id) ON DELETE CASCADE, custom_id TEXT NOT NULL,
    is_failed INTEGER NOT NULL, line BLOB NOT NULL, PRIMARY KEY (batch, custom_id)
);
"""
_FACTS = "id, owner, filename, purpose, created_at, expires_at, bytes"

Batch = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True)
class StoredFile:
    """A file without its content; times in seconds since 1970."""

    id: str
    owner: str
    filename: str
    purpose: str
    created_at: int
    expires_at: int
    bytes: int

    def to_dict(self) -> dict[str, Any]:
        """Return the file as OpenAI describes it."""
        facts = {name: value for name, value in asdict(self).items() if name != "owner"}
        return {"object": "file", "status": "processed", **facts}


def now() -> int:
    """Return the seconds since 1970: files and batches expire while no server runs, too."""
    return int(time.time())


class JobStore:
    """Files and batches of all clients. Every method takes a while on large files; any thread may call it.

    Raises HTTPException for what a client does not have, and for what has no room.
    """

    def __init__(self, path: Path) -> None:
        """Open or create the database. Raises PumiceError if the file cannot be used."""
        self._lock = threading.Lock()
        self._process_lock = FileLock(path.with_name(f"{path.name}.lock"), timeout=0, thread_local=False)
        try:
            self._process_lock.acquire()
        except Timeout:
            raise pumice.PumiceError(
                f"{path} is used by another server: end that one, or leave out --batches"
            ) from None
        except OSError as error:
            raise pumice.PumiceError(f"batches cannot be kept in {path}: {error.strerror}") from None
        self._database = open_database(path, _SCHEMA, _VERSION, ["batch", "file", "result"], "batches")

    def close(self) -> None:
        with self._lock:
            self._database.close()
        self._process_lock.release()

    # --- files

    def add_file(self, file: StoredFile, content: bytes) -> None:
        """Keep a file; older ones that have expired go first."""
        with self._changing():
            self._forget_old()
            if self._count("file") >= MAX_FILES:
                raise HTTPException(507, f"{MAX_FILES} files are kept already; delete others")
            if self._size() + file.bytes > MAX_BYTES:
                raise HTTPException(507, f"the files would take more than {MAX_BYTES} bytes; delete others")
            self._put_file(file, content)

    def files(self, owner: str) -> list[StoredFile]:
        """Return the files of a client, the newest first."""
        select = f"SELECT {_FACTS} FROM file WHERE owner = ? AND expires_at > ? ORDER BY created_at DESC, rowid DESC"
        return [StoredFile(*row) for row in self._read(select, owner, now())]

    def file(self, owner: str, id: str) -> StoredFile:
        select = f"SELECT {_FACTS} FROM file WHERE owner = ? AND id = ? AND expires_at > ?"
        rows = self._read(select, owner, id, now())
        if not rows:
            raise HTTPException(404, f"there is no file {id!r:.100}")
        return StoredFile(*rows[0])

    def content(self, owner: str, id: str) -> bytes:
        self.file(owner, id)
        rows = self._read("SELECT content FROM file WHERE owner = ? AND id = ?", owner, id)
        return bytes(rows[0][0]) if rows else b""

    def delete_file(self, owner: str, id: str) -> None:
        """Delete a file that no unfinished batch reads."""
        self.file(owner, id)
        for batch in self.unfinished():
            if batch["input_file_id"] == id:
                raise HTTPException(409, f"the batch {batch['id']} reads {id!r:.100}; cancel it first")
        with self._changing():
            self._run("DELETE FROM file WHERE owner = ? AND id = ?", owner, id)

    # --- batches

    def add_batch(self, owner: str, batch: Batch) -> None:
        with self._changing():
            self._forget_old()
            if self._count("batch") >= MAX_BATCHES:
                raise HTTPException(507, f"{MAX_BATCHES} batches are kept already")
            if self._count("batch WHERE is_finished = 0") >= MAX_WAITING:
                raise HTTPException(429, f"{MAX_WAITING} batches wait already: try again later")
            body = orjson.dumps(batch).decode()
            self._run("INSERT INTO batch VALUES (?, ?, 0, ?)", batch["id"], owner, body)

    def batches(self, owner: str) -> list[Batch]:
        """Return the batches of a client, the newest first, with the counts of their results."""
        rows = self._read("SELECT body FROM batch WHERE owner = ? ORDER BY rowid DESC", owner)
        return [self._counted(orjson.loads(body)) for (body,) in rows]

    def batch(self, owner: str, id: str) -> Batch:
        rows = self._read("SELECT body FROM batch WHERE owner = ? AND id = ?", owner, id)
        if not rows:
            raise HTTPException(404, f"there is no batch {id!r:.100}")
        return self._counted(orjson.loads(rows[0][0]))

    def change(self, id: str, **fields: Any) -> Batch:
        """Change fields of a batch, unless it is finished, and return it."""
        with self._changing():
            body, is_finished = self._run("SELECT body, is_finished FROM batch WHERE id = ?", id)[0]
            batch: Batch = orjson.loads(body)
            if not is_finished:
                batch |= fields
                values = int(batch["status"] in FINISHED), orjson.dumps(batch).decode(), id
                self._run("UPDATE batch SET is_finished = ?, body = ? WHERE id = ?", *values)
        return batch

    def unfinished(self) -> list[Batch]:
        """Return the batches of all clients that are to be answered, the oldest first."""
        rows = self._read("SELECT owner, body FROM batch WHERE is_finished = 0 ORDER BY rowid")
        return [{**orjson.loads(body), "owner": owner} for owner, body in rows]

    # --- results

    def add_result(self, batch: str, result: Mapping[str, Any], is_failed: bool) -> None:
        """Keep the result of a row, unless it has one."""
        line = orjson.dumps(result) + b"\n"
        with self._changing():
            if self._size() + len(line) > MAX_BYTES:
                raise HTTPException(507, f"files and results would take more than {MAX_BYTES} bytes")
            insert = "INSERT OR IGNORE INTO result VALUES (?, ?, ?, ?)"
            self._run(insert, batch, result["custom_id"], int(is_failed), line)

    def done(self, batch: str) -> set[str]:
        """Return the ``custom_id`` of rows with a result."""
        return {custom_id for (custom_id,) in self._read("SELECT custom_id FROM result WHERE batch = ?", batch)}

    def finish(self, id: str, files: Mapping[str, StoredFile], **fields: Any) -> None:
        """End a batch: make files of its results, ``output_file_id`` and ``error_file_id``, where there are any."""
        with self._changing():
            body, is_finished = self._run("SELECT body, is_finished FROM batch WHERE id = ?", id)[0]
            if is_finished:
                return
            batch: Batch = orjson.loads(body)
            batch |= {**fields, "request_counts": self._counts(id, batch["request_counts"]["total"])}
            for is_failed, (name, file) in enumerate(files.items()):
                select = "SELECT line FROM result WHERE batch = ? AND is_failed = ? ORDER BY rowid"
                content = b"".join(line for (line,) in self._run(select, id, is_failed))
                if content:
                    self._put_file(StoredFile(**{**asdict(file), "bytes": len(content)}), content)
                    batch[name] = file.id
            self._run("DELETE FROM result WHERE batch = ?", id)
            self._run("UPDATE batch SET is_finished = 1, body = ? WHERE id = ?", orjson.dumps(batch).decode(), id)

    def _counted(self, batch: Batch) -> Batch:
        if batch["status"] in FINISHED:
            return batch
        with self._lock:
            return {**batch, "request_counts": self._counts(batch["id"], batch["request_counts"]["total"])}

    def _counts(self, id: str, total: int) -> dict[str, int]:
        select = "SELECT COUNT(*), COALESCE(SUM(is_failed), 0) FROM result WHERE batch = ?"
        ((n, n_failed),) = self._run(select, id)
        return {"total": total, "completed": n - n_failed, "failed": n_failed}

    def _put_file(self, file: StoredFile, content: bytes) -> None:
        self._run("INSERT INTO file VALUES (?, ?, ?, ?, ?, ?, ?, ?)", *asdict(file).values(), content)

    def _forget_old(self) -> None:
        today = now()
        self._run("DELETE FROM file WHERE expires_at <= ?", today)
        old = "json_extract(body, '$.created_at') <= ?"
        self._run(f"DELETE FROM batch WHERE is_finished = 1 AND {old}", today - MAX_AGE)

    def _size(self) -> int:
        files = "SELECT COALESCE(SUM(bytes), 0) FROM file"
        results = "SELECT COALESCE(SUM(LENGTH(line)), 0) FROM result"
        return int(self._run(files)[0][0] + self._run(results)[0][0])

    def _count(self, table: str) -> int:
        return int(self._run(f"SELECT COUNT(*) FROM {table}")[0][0])

    def _read(self, statement: str, *values: str | int) -> Sequence[Any]:
        with self._lock:
            return self._run(statement, *values)

    def _run(self, statement: str, *values: str | int | bytes) -> Sequence[Any]:
        return self._database.execute(statement, values).fetchall()

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Hold the database for a change, all of which or nothing happens. Raises HTTPException if the disk is full."""
        with self._lock:
            try:
                self._database.execute("BEGIN IMMEDIATE")
                yield
                self._database.execute("COMMIT")
            except sqlite3.Error as error:
                self._back()
                raise HTTPException(507, f"batches cannot be kept: {error}") from None
            except BaseException:
                self._back()
                raise

    def _back(self) -> None:
        if self._database.in_transaction:
            self._database.execute("ROLLBACK")
