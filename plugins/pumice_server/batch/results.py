"""Results of a batch, written to a file as they come, from which an interrupted batch resumes."""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path
from typing import IO, Any, Self

import click
import orjson
from filelock import FileLock, Timeout

from pumice_server.batch.rows import is_parquet, parquet, read_lines, read_parquet

_JSON_COLUMNS = ("response", "error")  # of Parquet: as JSON texts
_BEGINNING = b'{"id":"batch_req_'  # of every line
_LOOK_BYTES = 65536  # that are read at once, to find where the last line begins
_GROUP_ROWS = 4096  # of Parquet: rows that are written at once


class Results:
    """The results in a file, one for each of ``ids``; ``done`` has the ids of finished rows.

    Results are lines of JSON, beside a Parquet file until all rows are done. Failed rows are also written to the file
    ``errors``. The context manager locks the file.
    """

    def __init__(self, path: Path, errors: Path | None, ids: Collection[str]) -> None:
        self.path = path
        self.done: set[str] = set()
        self.n_failed = 0
        self._ids = ids
        self._errors = errors
        self._lines = path.with_name(f"{path.name}.jsonl") if is_parquet(path) else path
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """Open and lock the file. Raises ClickException if it is in use, not writable, or of other rows."""
        if is_parquet(self.path):
            parquet()  # needed at the end, and missed before anything is computed
        with ExitStack() as stack:
            try:
                self._lock(stack)
                if is_parquet(self.path) and self.path.exists() and not self._lines.exists():
                    _to_lines(self.path, self._lines)
                failed = self._read()
                self._file = stack.enter_context(_open_lines(self._lines))
                self._failures = stack.enter_context(self._open_errors(failed)) if self._errors else None
            except OSError as error:
                raise click.ClickException(f"cannot write {error.filename or self.path}: {error.strerror}") from None
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with suppress(OSError) if kind else nullcontext():  # a line that failed is written again, and fails again
            self._stack.close()

    def add(self, result: Mapping[str, Any]) -> None:
        """Write a result, unless its row has one. Raises ClickException if the disk is full."""
        if result["custom_id"] in self.done:
            return
        line = orjson.dumps(result) + b"\n"
        self.done.add(result["custom_id"])
        try:
            _write(self._file, line)
            if is_failed(result):
                self.n_failed += 1
                if self._failures:
                    _write(self._failures, line)
        except OSError as error:
            raise click.ClickException(f"cannot write {self.path}: {error.strerror}") from None

    def finish(self) -> None:
        """Flush the results to disk, and convert them to Parquet if the file is one."""
        try:
            os.fsync(self._file.fileno())
            if is_parquet(self.path):
                _to_parquet(self._lines, self.path)
                self._lines.unlink()
        except OSError as error:
            raise click.ClickException(f"cannot write {self.path}: {error.strerror or error}") from None

    def _lock(self, stack: ExitStack) -> None:
        if not self.path.parent.is_dir():
            raise click.ClickException(f"cannot write {self.path}: there is no folder {self.path.parent}")
        lock = self.path.with_name(f"{self.path.name}.lock")
        try:
            stack.enter_context(FileLock(lock, timeout=0))
        except Timeout:
            raise click.ClickException(f"{self.path} is being written by another process") from None
        stack.callback(_remove, lock)

    def _read(self) -> list[bytes]:
        """Read the finished rows of the file, and return the lines of failed ones."""
        failed = []
        for line, result in _read_results(self._lines, self._ids):
            self.done.add(result["custom_id"])
            if is_failed(result):
                failed.append(line)
        self.n_failed = len(failed)
        return failed

    def _open_errors(self, failed: list[bytes]) -> IO[bytes]:
        """Open the file of failures, rewritten since the two files may differ after a kill."""
        assert self._errors is not None
        for _ in _read_results(self._errors, self._ids):
            pass  # raises for results of another batch
        temporary = self._errors.with_name(f"{self._errors.name}.new")
        temporary.write_bytes(b"".join(failed))
        temporary.replace(self._errors)
        return self._errors.open("ab")


def is_failed(result: Mapping[str, Any]) -> bool:
    return result["response"] is None or result["response"]["status_code"] >= 400


def _read_results(path: Path, ids: Collection[str]) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Yield complete lines and their results. Raises ClickException for anything else."""
    for number, line in enumerate(read_lines(path) if path.exists() else (), 1):
        if not line.endswith(b"\n") and (line.startswith(_BEGINNING) or _BEGINNING.startswith(line)):
            return  # incomplete line of a killed writer
        try:
            result = orjson.loads(line)
            custom_id, _ = result["custom_id"], is_failed(result)
        except (ValueError, TypeError, KeyError):
            raise _no_result(path, number) from None
        if custom_id not in ids:
            raise click.ClickException(
                f"{path}:{number}: this is the result of {custom_id!r:.100}, which is not in the input; "
                "name another file for the results"
            )
        yield line, result


def _no_result(path: Path, number: int) -> click.ClickException:
    return click.ClickException(f"{path}:{number}: not a result of a batch; choose another file for the results")


def _open_lines(path: Path) -> IO[bytes]:
    """Open a file to append lines, without an incomplete last line."""
    file = path.open("a+b")
    left = end = file.seek(0, os.SEEK_END)
    while left:
        start = max(0, left - _LOOK_BYTES)
        file.seek(start)
        newline = file.read(left - start).rfind(b"\n")
        if newline >= 0:
            file.truncate(start + newline + 1)
            return file
        left = start
    if end:
        file.truncate(0)
    return file


def _write(file: IO[bytes], line: bytes) -> None:
    file.write(line)
    file.flush()


def _to_parquet(lines: Path, path: Path) -> None:
    import pyarrow

    module = parquet()
    temporary = path.with_name(f"{path.name}.new")
    schema = pyarrow.schema([(name, pyarrow.string()) for name in ("id", "custom_id", *_JSON_COLUMNS)])
    coming = map(_columns, read_lines(lines))
    with module.ParquetWriter(temporary, schema) as writer:
        while group := list(itertools.islice(coming, _GROUP_ROWS)):
            writer.write_table(pyarrow.Table.from_pylist(group, schema))
    temporary.replace(path)


def _columns(line: bytes) -> dict[str, Any]:
    result = orjson.loads(line)
    texts = {name: orjson.dumps(result[name]).decode() for name in _JSON_COLUMNS if result[name] is not None}
    return {"id": result["id"], "custom_id": result["custom_id"], **texts}


def _to_lines(path: Path, lines: Path) -> None:
    """Convert a Parquet file of results to lines. Raises ClickException for any other file."""
    temporary = lines.with_name(f"{lines.name}.new")
    try:
        with temporary.open("wb") as file:
            for number, row in enumerate(read_parquet(path), 1):
                try:
                    parsed = {name: orjson.loads(row[name]) if row[name] else None for name in _JSON_COLUMNS}
                    file.write(orjson.dumps({**row, **parsed}) + b"\n")
                except (ValueError, TypeError, KeyError):
                    raise _no_result(path, number) from None
        temporary.replace(lines)
    finally:
        _remove(temporary)


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()
