"""The database of files and batches, which outlives the server: ``pumice serve --batches``."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import orjson
from starlette.exceptions import HTTPException

from pumice_server.errors import bad_request
from pumice_server.jobs.answer_types import FileObject
from pumice_server.jobs.database import JobDatabase
from pumice_server.pools import share

MAX_FILES = 1000
MAX_BATCHES = 1000
MAX_WAITING = 100  # batches that are not finished
MAX_AGE = 30 * 86_400  # seconds that a file and a finished batch are kept
BATCH_SECONDS = 86_400  # that a batch may take

FINISHED = ("completed", "failed", "expired", "cancelled")
_PART = 128 << 10  # bytes of a file that are kept, and read, at once
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
    return int(time.time())  # noqa: TID251 (files and batches outlive the server)


class JobStore:
    """Files and batches of all clients. Every method takes a while on large files; any thread may call it.

    Raises HTTPException for what a client does not have, and for what has no room.
    """

    def __init__(self, path: Path) -> None:
        """Open or create the database. Raises PumiceError if the file cannot be used."""
        self.database = JobDatabase(path)

    # --- files

    def add_file(self, file: StoredFile, content: bytes) -> None:
        """Keep a file; older ones that have expired go first."""
        with self.database.changing():
            self._forget_old()
            others, own = self._counts_of("file", file.owner)
            if own >= share(MAX_FILES, file.owner, others):
                raise HTTPException(507, f"{own} files are kept already; delete others")
            self.database.check_room(file.owner, file.bytes)
            self._put_file(file, [content])

    def files(self, owner: str) -> list[StoredFile]:
        """Return the files of a client, the newest first."""
        select = f"SELECT {_FACTS} FROM file WHERE owner = ? AND expires_at > ? ORDER BY created_at DESC, rowid DESC"
        return [StoredFile(*row) for row in self.database.read(select, owner, now())]

    def file(self, owner: str, id: str) -> StoredFile:
        with self.database.lock:
            return self._file(owner, id)

    def part(self, id: str, number: int) -> bytes:
        """Return a part of a file; an empty one follows the last."""
        rows = self.database.read("SELECT content FROM part WHERE file = ? AND number = ?", id, number)
        return bytes(rows[0][0]) if rows else b""

    def input(self, id: str) -> bytes:
        """Return the content of a file that a batch reads, whether or not it has expired meanwhile."""
        return b"".join(
            part for (part,) in self.database.read("SELECT content FROM part WHERE file = ? ORDER BY number", id)
        )

    def delete_file(self, owner: str, id: str) -> None:
        """Delete a file that no unfinished batch reads."""
        with self.database.changing():
            self._file(owner, id)
            for (batch,) in self.database.run("SELECT id FROM batch WHERE is_finished = 0 AND input = ? LIMIT 1", id):
                raise HTTPException(409, f"the batch {batch} reads {id!r:.100}; cancel it first")
            self.database.delete("file WHERE owner = ? AND id = ?", owner, id)

    # --- batches

    def add_batch(self, owner: str, batch: Batch) -> None:
        """Keep a batch; the oldest that are finished go first where there are too many."""
        with self.database.changing():
            self._file(owner, batch["input_file_id"])
            self._forget_old()
            others, own = self._counts_of("batch", owner)
            if others + own >= MAX_BATCHES:
                self.database.delete("batch WHERE rowid = (SELECT MIN(rowid) FROM batch WHERE is_finished = 1)")
                others, own = self._counts_of("batch", owner)
            if own >= share(MAX_BATCHES, owner, others):
                oldest = "SELECT MIN(rowid) FROM batch WHERE is_finished = 1 AND owner = ?"
                self.database.delete(f"batch WHERE rowid = ({oldest})", owner)
                others, own = self._counts_of("batch", owner)
            if own >= share(MAX_BATCHES, owner, others):
                raise HTTPException(507, f"{own} batches are kept already")
            others, own = self._counts_of("batch", owner, "is_finished = 0")
            if own >= share(MAX_WAITING, owner, others):
                raise HTTPException(429, f"{own} batches wait already: try again later")
            values = batch["id"], owner, batch["input_file_id"], batch["created_at"], orjson.dumps(batch).decode()
            self.database.run("INSERT INTO batch VALUES (?, ?, ?, ?, 0, ?)", *values)

    def batches(self, owner: str, after: str | None, limit: int) -> list[Batch]:
        """Return batches of a client, the newest first, with the counts of their results.

        Args:
            owner: The client.
            after: Id of the batch before the first; None begins with the newest.
            limit: Most batches.
        """
        begin = 2**62
        if after:
            rows = self.database.read("SELECT rowid FROM batch WHERE owner = ? AND id = ?", owner, after)
            if not rows:
                raise bad_request(f"after: there is no {after!r:.100}")
            begin = rows[0][0]
        select = "SELECT body FROM batch WHERE owner = ? AND rowid < ? ORDER BY rowid DESC LIMIT ?"
        return [self._counted(orjson.loads(body)) for (body,) in self.database.read(select, owner, begin, limit)]

    def batch(self, owner: str, id: str) -> Batch:
        rows = self.database.read("SELECT body FROM batch WHERE owner = ? AND id = ?", owner, id)
        if not rows:
            raise HTTPException(404, f"there is no batch {id!r:.100}")
        return self._counted(orjson.loads(rows[0][0]))

    def change(self, id: str, **fields: Any) -> Batch:
        """Change fields of a batch, unless it is finished, and return it."""
        with self.database.changing():
            batch, is_finished = self._body(id)
            if not is_finished:
                batch |= fields
                self.database.run("UPDATE batch SET body = ? WHERE id = ?", orjson.dumps(batch).decode(), id)
        return batch

    def next_batch(self, owner: str = "") -> Batch | None:
        """Return the batch that is to be answered after one of ``owner``: owners take turns, each with its oldest."""
        select = "SELECT owner, body FROM batch WHERE is_finished = 0 ORDER BY owner <= ?, owner, rowid LIMIT 1"
        for next_owner, body in self.database.read(select, owner):
            return {**orjson.loads(body), "owner": next_owner}
        return None

    # --- results

    def add_result(self, batch: str, result: Mapping[str, Any], is_failed: bool) -> None:
        """Keep the result of a row, unless it has one or its batch is finished."""
        line = orjson.dumps(result) + b"\n"
        with self.database.changing():
            for (owner,) in self.database.run("SELECT owner FROM batch WHERE id = ? AND is_finished = 0", batch):
                self.database.check_room(owner, len(line))
                self._put_result(owner, batch, result["custom_id"], is_failed, line)

    def done(self, batch: str) -> set[str]:
        """Return the ``custom_id`` of rows with a result."""
        return {custom_id for (custom_id,) in self.database.read("SELECT custom_id FROM result WHERE batch = ?", batch)}

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
        with self.database.changing():
            batch, is_finished = self._body(id)
            if not is_finished:
                batch |= {**fields, "request_counts": self._counts(id, batch["request_counts"]["total"])}
                self._put_left(id, left)
                for is_failed, (name, file) in enumerate(files.items()):
                    where = "result WHERE batch = ? AND is_failed = ?"
                    n_bytes = self.database.run(f"SELECT COALESCE(SUM(LENGTH(line)), 0) FROM {where}", id, is_failed)[
                        0
                    ][0]
                    if n_bytes:
                        lines = self.database.execute(f"SELECT line FROM {where} ORDER BY rowid", id, is_failed)
                        self._put_file(replace(file, bytes=n_bytes), (line for (line,) in lines))
                        batch[name] = file.id
                self.database.run(
                    "UPDATE batch SET is_finished = 1, body = ? WHERE id = ?", orjson.dumps(batch).decode(), id
                )
            self.database.delete("result WHERE batch = ?", id)

    # --- within a change

    def _file(self, owner: str, id: str) -> StoredFile:
        rows = self.database.run(
            f"SELECT {_FACTS} FROM file WHERE owner = ? AND id = ? AND expires_at > ?", owner, id, now()
        )
        if not rows:
            raise HTTPException(404, f"there is no file {id!r:.100}")
        return StoredFile(*rows[0])

    def _body(self, id: str) -> tuple[Batch, bool]:
        """Return a batch, and True if it is finished. Raises HTTPException if it is forgotten."""
        rows = self.database.run("SELECT body, is_finished FROM batch WHERE id = ?", id)
        if not rows:
            raise HTTPException(404, f"there is no batch {id!r:.100}")
        return orjson.loads(rows[0][0]), bool(rows[0][1])

    def _counted(self, batch: Batch) -> Batch:
        if batch["status"] in FINISHED:
            return batch
        with self.database.lock:
            return {**batch, "request_counts": self._counts(batch["id"], batch["request_counts"]["total"])}

    def _counts(self, id: str, total: int) -> dict[str, int]:
        select = "SELECT COUNT(*), COALESCE(SUM(is_failed), 0) FROM result WHERE batch = ?"
        ((n, n_failed),) = self.database.run(select, id)
        return {"total": total, "completed": n - n_failed, "failed": n_failed}

    def _counts_of(self, table: str, owner: str, where: str = "1") -> tuple[int, int]:
        """Return the number of rows that other owners have, and of those of ``owner``."""
        select = f"SELECT COALESCE(SUM(owner <> ?), 0), COALESCE(SUM(owner = ?), 0) FROM {table} WHERE {where}"
        others, own = self.database.run(select, owner, owner)[0]
        return others, own

    def _put_file(self, file: StoredFile, content: Iterable[bytes]) -> None:
        """Keep a file whose content comes in pieces of any size."""
        self.database.run("INSERT INTO file VALUES (?, ?, ?, ?, ?, ?, ?)", *asdict(file).values())
        for number, part in enumerate(_parts(content)):
            self.database.run("INSERT INTO part VALUES (?, ?, ?)", file.id, number, part)
        self.database.count(file.owner, file.bytes)

    def _put_result(self, owner: str, batch: str, custom_id: str, is_failed: bool, line: bytes) -> None:
        insert = "INSERT OR IGNORE INTO result VALUES (?, ?, ?, ?)"
        if self.database.execute(insert, batch, custom_id, int(is_failed), line).rowcount:
            self.database.count(owner, len(line))

    def _put_left(self, id: str, left: Iterable[Mapping[str, Any]]) -> None:
        """Add failed results of the rows of a batch that have none."""
        ((owner,),) = self.database.run("SELECT owner FROM batch WHERE id = ?", id)
        for result in left:
            line = orjson.dumps(result) + b"\n"
            self.database.check_room(owner, len(line))
            self._put_result(owner, id, result["custom_id"], True, line)

    def _forget_old(self) -> None:
        today = now()
        self.database.delete(
            "file WHERE expires_at <= ? AND id NOT IN (SELECT input FROM batch WHERE is_finished = 0)", today
        )
        self.database.delete("batch WHERE is_finished = 1 AND created_at <= ?", today - MAX_AGE)


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
