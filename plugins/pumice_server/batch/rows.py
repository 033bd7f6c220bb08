"""Requests of a batch: lines of JSON in OpenAI's batch format, or rows of Parquet."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import orjson

from pumice.plugin.unstable import BatchRow, install_command

URLS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/rerank")
"""Endpoints that a row may use."""

_BATCH_ROWS = 1024  # rows of Parquet read at once


def read_row(fields: Any) -> BatchRow:
    """Return the row of a JSON object. Raises ValueError that says what is wrong with it."""
    if not isinstance(fields, dict):
        raise ValueError("expected an object with custom_id, method, url and body")
    custom_id, method, url, body = (fields.get(name) for name in ("custom_id", "method", "url", "body"))
    if not isinstance(custom_id, str) or not custom_id:
        raise ValueError("custom_id must be a text, and not empty")
    if method not in (None, "POST"):
        raise ValueError(f"method must be POST, not {method!r:.60}")
    if url not in URLS:
        raise ValueError(f"url must be one of {', '.join(URLS)}, not {url!r:.60}")
    if isinstance(body, str):  # a column of Parquet
        body = _parse(body)
    if not isinstance(body, dict):
        raise ValueError("body must be an object: the request's fields")
    if body.get("stream"):
        raise ValueError("stream must be false: a row has one result")
    return BatchRow(custom_id, url, body)


def read_rows(path: Path) -> Iterator[BatchRow]:
    """Yield the rows of a file. Raises ClickException with the number of a malformed row."""
    return (row for _, row in _numbered_rows(path))


def _numbered_rows(path: Path) -> Iterator[tuple[int, BatchRow]]:
    """Yield the rows of a file with their numbers, from 1 on. Raises as ``read_rows``."""
    for number, fields in enumerate(read_parquet(path) if is_parquet(path) else read_lines(path), 1):
        try:
            if isinstance(fields, bytes):
                if not fields.strip():
                    continue
                fields = _parse(fields)
            row = read_row(fields)
        except ValueError as error:
            raise click.ClickException(f"{path}:{number}: {error}") from None
        yield number, row


def read_ids(path: Path) -> dict[str, int]:
    """Return the number of each row by its ``custom_id``. Raises ClickException for a duplicate."""
    ids: dict[str, int] = {}
    for number, row in _numbered_rows(path):
        if (first := ids.setdefault(row.custom_id, number)) != number:
            problem = f"row {first} has the custom_id {row.custom_id!r:.100} already; give each row its own"
            raise click.ClickException(f"{path}:{number}: {problem}")
    return ids


def is_parquet(path: Path) -> bool:
    return path.suffix == ".parquet"


def parquet() -> Any:
    """The module ``pyarrow.parquet``."""
    try:
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise click.ClickException(f"pyarrow is not installed: {install_command('parquet')}") from None
    return pyarrow.parquet


def read_lines(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            if file.peek(len(BOM_UTF8)).startswith(BOM_UTF8):
                file.seek(len(BOM_UTF8))
            yield from file
    except OSError as error:
        raise click.ClickException(f"cannot read {path}: {error.strerror}") from None


def read_parquet(path: Path) -> Iterator[Any]:
    """The rows of a file as dictionaries. Raises ClickException for one that cannot be read."""
    module = parquet()
    try:
        with module.ParquetFile(path) as file:
            for batch in file.iter_batches(_BATCH_ROWS):
                yield from batch.to_pylist()
    except (OSError, ValueError) as error:  # pyarrow's errors are among them
        raise click.ClickException(f"cannot read {path}: {' '.join(str(error).split())}") from None


def _parse(text: str | bytes) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"not valid JSON: {error.msg} (character {error.pos + 1})") from None
