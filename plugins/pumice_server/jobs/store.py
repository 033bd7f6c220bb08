"""The database of files and batches, which outlives the server: ``pumice serve --batches``."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import orjson
from filelock import FileLock, Timeout
from starlette.exceptions import HTTPException

import pumice
from pumice_server.database import open_database
from pumice_server.errors import bad_request
from pumice_server.jobs.answer_types import FileObject
from pumice_server.pools import share

MAX_FILES = 1000
MAX_BYTES = 1 << 28  # of all files and results
MAX_BATCHES = 1000
MAX_WAITING = 100  # batches that are not finished
MAX_AGE = 30 * 86_400  # seconds that a file and a finished batch are kept
BATCH_SECONDS = 86_400  # that a batch may take

FINISHED = ("completed", "failed", "expired", "cancelled")
_PART = 128 << 10  # bytes of a file that are kept, and read, at once
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
_FACTS = "id, owner, filename, purpose, created_at, expires_at, bytes"

Batch = dict[str, Any]


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

    def answer(self) -> FileObject:
        """Return the file as OpenAI describes it."""
        facts = {name: value for name, value in asdict(self).items() if name != "owner"}
        return FileObject(object="file", status="processed", **facts)


def now() -> int:
    """Return the seconds since 1970: files and batches expire while no server runs, too."""
    return int(time.time())


class Unwritable(HTTPException):
    """The database cannot be changed now: the disk may be full, or have an error."""

    def __init__(self, error: sqlite3.Error) -> None:
        super().__init__(507, f"batches cannot be kept: {error}")


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
        self._database = open_database(path, _SCHEMA, _VERSION, ["batch", "file", "part", "result"], "batches")
        self._sizes = self._measured()  # bytes of files and results by owner

    def close(self) -> None:
        with self._lock:
            self._database.close()
        self._process_lock.release()

    # --- files

    def add_file(self, file: StoredFile, content: bytes) -> None:
        """Keep a file; older ones that have expired go first."""
        with self._changing():
            self._forget_old()
            others, own = self._counts_of("file", file.owner)
            if own >= share(MAX_FILES, file.owner, others):
                raise HTTPException(507, f"{own} files are kept already; delete others")
            self._check_room(file.owner, file.bytes)
            self._put_file(file, [content])

    def files(self, owner: str) -> list[StoredFile]:
        """Return the files of a client, the newest first."""
        select = f"SELECT {_FACTS} FROM file WHERE owner = ? AND expires_at > ? ORDER BY created_at DESC, rowid DESC"
        return [StoredFile(*row) for row in self._read(select, owner, now())]

    def file(self, owner: str, id: str) -> StoredFile:
        with self._lock:
            return self._file(owner, id)

    def part(self, id: str, number: int) -> bytes:
        """Return a part of a file; an empty one follows the last."""
        rows = self._read("SELECT content FROM part WHERE file = ? AND number = ?", id, number)
        return bytes(rows[0][0]) if rows else b""

    def input(self, id: str) -> bytes:
        """Return the content of a file that a batch reads, whether or not it has expired meanwhile."""
        return b"".join(part for (part,) in self._read("SELECT content FROM part WHERE file = ? ORDER BY number", id))

    def delete_file(self, owner: str, id: str) -> None:
        """Delete a file that no unfinished batch reads."""
        with self._changing():
            self._file(owner, id)
            for (batch,) in self._run("SELECT id FROM batch WHERE is_finished = 0 AND input = ? LIMIT 1", id):
                raise HTTPException(409, f"the batch {batch} reads {id!r:.100}; cancel it first")
            self._delete("file WHERE owner = ? AND id = ?", owner, id)

    # --- batches

    def add_batch(self, owner: str, batch: Batch) -> None:
        """Keep a batch; the oldest that are finished go first where there are too many."""
        with self._changing():
            self._file(owner, batch["input_file_id"])
            self._forget_old()
            others, own = self._counts_of("batch", owner)
            if others + own >= MAX_BATCHES:
                self._delete("batch WHERE rowid = (SELECT MIN(rowid) FROM batch WHERE is_finished = 1)")
                others, own = self._counts_of("batch", owner)
            if own >= share(MAX_BATCHES, owner, others):
                oldest = "SELECT MIN(rowid) FROM batch WHERE is_finished = 1 AND owner = ?"
                self._delete(f"batch WHERE rowid = ({oldest})", owner)
                others, own = self._counts_of("batch", owner)
            if own >= share(MAX_BATCHES, owner, others):
                raise HTTPException(507, f"{own} batches are kept already")
            others, own = self._counts_of("batch", owner, "is_finished = 0")
            if own >= share(MAX_WAITING, owner, others):
                raise HTTPException(429, f"{own} batches wait already: try again later")
            values = batch["id"], owner, batch["input_file_id"], batch["created_at"], orjson.dumps(batch).decode()
            self._run("INSERT INTO batch VALUES (?, ?, ?, ?, 0, ?)", *values)

    def batches(self, owner: str, after: str | None, limit: int) -> list[Batch]:
        """Return batches of a client, the newest first, with the counts of their results.

        Args:
            owner: The client.
            after: Id of the batch before the first; None begins with the newest.
            limit: Most batches.
        """
        begin = 2**62
        if after:
            rows = self._read("SELECT rowid FROM batch WHERE owner = ? AND id = ?", owner, after)
            if not rows:
                raise bad_request(f"after: there is no {after!r:.100}")
            begin = rows[0][0]
        select = "SELECT body FROM batch WHERE owner = ? AND rowid < ? ORDER BY rowid DESC LIMIT ?"
        return [self._counted(orjson.loads(body)) for (body,) in self._read(select, owner, begin, limit)]

    def batch(self, owner: str, id: str) -> Batch:
        rows = self._read("SELECT body FROM batch WHERE owner = ? AND id = ?", owner, id)
        if not rows:
            raise HTTPException(404, f"there is no batch {id!r:.100}")
        return self._counted(orjson.loads(rows[0][0]))

    def change(self, id: str, **fields: Any) -> Batch:
        """Change fields of a batch, unless it is finished, and return it."""
        with self._changing():
            batch, is_finished = self._body(id)
            if not is_finished:
                batch |= fields
                self._run("UPDATE batch SET body = ? WHERE id = ?", orjson.dumps(batch).decode(), id)
        return batch

    def next_batch(self, owner: str = "") -> Batch | None:
        """Return the batch that is to be answered after one of ``owner``: owners take turns, each with its oldest."""
        select = "SELECT owner, body FROM batch WHERE is_finished = 0 ORDER BY owner <= ?, owner, rowid LIMIT 1"
        for next_owner, body in self._read(select, owner):
            return {**orjson.loads(body), "owner": next_owner}
        return None

    # --- results

    def add_result(self, batch: str, result: Mapping[str, Any], is_failed: bool) -> None:
        """Keep the result of a row, unless it has one or its batch is finished."""
        line = orjson.dumps(result) + b"\n"
        with self._changing():
            for (owner,) in self._run("SELECT owner FROM batch WHERE id = ? AND is_finished = 0", batch):
                self._check_room(owner, len(line))
                self._put_result(owner, batch, result["custom_id"], is_failed, line)

    def done(self, batch: str) -> set[str]:
        """Return the ``custom_id`` of rows with a result."""
        return {custom_id for (custom_id,) in self._read("SELECT custom_id FROM result WHERE batch = ?", batch)}

    def finish(
        self, id: str, files: Mapping[str, StoredFile], left: Sequence[Mapping[str, Any]] = (), **fields: Any
    ) -> None:
        """End a batch, and delete its results.

        Args:
            id: The batch.
            files: Files to make of its results, where there are any: ``output_file_id`` and ``error_file_id``.
            left: Failed results of the rows that have none.
            **fields: Fields of the batch to change.
        """
        with self._changing():
            batch, is_finished = self._body(id)
            if not is_finished:
                batch |= {**fields, "request_counts": self._counts(id, batch["request_counts"]["total"])}
                self._put_left(id, left)
                for is_failed, (name, file) in enumerate(files.items()):
                    where = "result WHERE batch = ? AND is_failed = ?"
                    n_bytes = self._run(f"SELECT COALESCE(SUM(LENGTH(line)), 0) FROM {where}", id, is_failed)[0][0]
                    if n_bytes:
                        lines = self._database.execute(f"SELECT line FROM {where} ORDER BY rowid", (id, is_failed))
                        self._put_file(replace(file, bytes=n_bytes), (line for (line,) in lines))
                        batch[name] = file.id
                self._run("UPDATE batch SET is_finished = 1, body = ? WHERE id = ?", orjson.dumps(batch).decode(), id)
            self._delete("result WHERE batch = ?", id)

    # --- within a change

    def _file(self, owner: str, id: str) -> StoredFile:
        rows = self._run(f"SELECT {_FACTS} FROM file WHERE owner = ? AND id = ? AND expires_at > ?", owner, id, now())
        if not rows:
            raise HTTPException(404, f"there is no file {id!r:.100}")
        return StoredFile(*rows[0])

    def _body(self, id: str) -> tuple[Batch, bool]:
        """Return a batch, and True if it is finished. Raises HTTPException if it is forgotten."""
        rows = self._run("SELECT body, is_finished FROM batch WHERE id = ?", id)
        if not rows:
            raise HTTPException(404, f"there is no batch {id!r:.100}")
        return orjson.loads(rows[0][0]), bool(rows[0][1])

    def _counted(self, batch: Batch) -> Batch:
        if batch["status"] in FINISHED:
            return batch
        with self._lock:
            return {**batch, "request_counts": self._counts(batch["id"], batch["request_counts"]["total"])}

    def _counts(self, id: str, total: int) -> dict[str, int]:
        select = "SELECT COUNT(*), COALESCE(SUM(is_failed), 0) FROM result WHERE batch = ?"
        ((n, n_failed),) = self._run(select, id)
        return {"total": total, "completed": n - n_failed, "failed": n_failed}

    def _counts_of(self, table: str, owner: str, where: str = "1") -> tuple[int, int]:
        """Return the number of rows that other owners have, and of those of ``owner``."""
        select = f"SELECT COALESCE(SUM(owner <> ?), 0), COALESCE(SUM(owner = ?), 0) FROM {table} WHERE {where}"
        others, own = self._run(select, owner, owner)[0]
        return others, own

    def _check_room(self, owner: str, n_bytes: int) -> None:
        """Raise HTTPException if files and results of an owner would take too much."""
        own = self._sizes.get(owner, 0)
        most = share(MAX_BYTES, owner, sum(self._sizes.values()) - own)
        if own + n_bytes > most:
            raise HTTPException(507, f"files and results would take more than {most} bytes; delete others")

    def _put_file(self, file: StoredFile, content: Iterable[bytes]) -> None:
        """Keep a file whose content comes in pieces of any size."""
        self._run("INSERT INTO file VALUES (?, ?, ?, ?, ?, ?, ?)", *asdict(file).values())
        for number, part in enumerate(_parts(content)):
            self._run("INSERT INTO part VALUES (?, ?, ?)", file.id, number, part)
        self._sizes[file.owner] = self._sizes.get(file.owner, 0) + file.bytes

    def _put_result(self, owner: str, batch: str, custom_id: str, is_failed: bool, line: bytes) -> None:
        insert = "INSERT OR IGNORE INTO result VALUES (?, ?, ?, ?)"
        if self._database.execute(insert, (batch, custom_id, int(is_failed), line)).rowcount:
            self._sizes[owner] = self._sizes.get(owner, 0) + len(line)

    def _put_left(self, id: str, left: Iterable[Mapping[str, Any]]) -> None:
        """Add failed results of the rows of a batch that have none."""
        ((owner,),) = self._run("SELECT owner FROM batch WHERE id = ?", id)
        for result in left:
            line = orjson.dumps(result) + b"\n"
            self._check_room(owner, len(line))
            self._put_result(owner, id, result["custom_id"], True, line)

    def _forget_old(self) -> None:
        today = now()
        self._delete("file WHERE expires_at <= ? AND id NOT IN (SELECT input FROM batch WHERE is_finished = 0)", today)
        self._delete("batch WHERE is_finished = 1 AND created_at <= ?", today - MAX_AGE)

    def _delete(self, rows: str, *values: str | int) -> None:
        """Delete rows of a table, and measure again if there were any."""
        if self._database.execute(f"DELETE FROM {rows}", values).rowcount:
            self._sizes = self._measured()

    def _measured(self) -> dict[str, int]:
        files = "SELECT owner, bytes FROM file"
        results = "SELECT batch.owner, LENGTH(line) FROM result JOIN batch ON batch.id = result.batch"
        return dict(self._run(f"SELECT owner, SUM(bytes) FROM ({files} UNION ALL {results}) GROUP BY owner"))

    def _read(self, statement: str, *values: str | int) -> Sequence[Any]:
        with self._lock:
            return self._run(statement, *values)

    def _run(self, statement: str, *values: str | int | bytes) -> Sequence[Any]:
        return self._database.execute(statement, values).fetchall()

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Hold the database for a change, all of which or nothing happens. Raises Unwritable if the disk is full."""
        with self._lock:
            sizes = dict(self._sizes)
            try:
                self._database.execute("BEGIN IMMEDIATE")
                yield
                self._database.execute("COMMIT")
            except BaseException as error:
                self._sizes = sizes
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                if isinstance(error, sqlite3.Error):
                    raise Unwritable(error) from None
                raise


def _parts(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield pieces of any size as parts of the size in which they are kept; the last may be shorter."""
    rest = bytearray()
    for piece in pieces:
        rest += piece
        begin = 0
        while len(rest) - begin >= _PART:
            yield bytes(rest[begin : begin + _PART])
            begin += _PART
        del rest[:begin]
    if rest:
        yield bytes(rest)
