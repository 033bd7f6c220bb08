"""Batch files: an error that names file and row, or the same rows as from the file's parts."""

import io
import json
from collections.abc import Iterable

import click

from fuzz.draw import Draw
from fuzz.files import scratch
from pumice_server.batch.rows import read_ids, read_rows

MODULES = ("pumice_server.batch.rows",)
MAX_LEN = 2500
_ROW = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": []}}
TOKENS = (
    b'"custom_id":', b'"method":', b'"url":', b'"body":', b'"/v1/chat/completions"', b'"/v1/completions"',
    b'"/v1/embeddings"', b'"POST"', b'"stream": true', b"\n", b"\r\n", b"\xef\xbb\xbf", b"\0", b"null", b"[]", b"{}",
    b'"\\ud800"', b"1e999", b"PAR1",
)  # fmt: skip


def seeds() -> Iterable[bytes]:
    yield b"\0\1" + json.dumps(_ROW).encode() + b"\n" + json.dumps({**_ROW, "custom_id": "b"}).encode() + b"\n"
    yield b"\0\0" + json.dumps(_ROW).encode() + b"\r\n\n" + json.dumps({**_ROW, "url": ["x"]}).encode()
    yield b"\1\0" + _parquet()


def _parquet() -> bytes:
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table({name: [json.dumps(value) if name == "body" else value] for name, value in _ROW.items()})
    file = io.BytesIO()
    pyarrow.parquet.write_table(table.replace_schema_metadata(None), file, compression="none", store_schema=False)
    return file.getvalue()


def check(data: bytes) -> None:
    draw = Draw(data)
    is_parquet, cuts = draw.flag(), draw.flag()
    content = draw.rest()
    path = scratch("rows.parquet" if is_parquet else "rows.jsonl", content)
    try:
        rows = list(read_rows(path))
        ids = read_ids(path)
    except click.ClickException as error:
        assert str(path) in error.message
        assert "\n" not in error.message, error.message
        return
    assert all(row.custom_id and isinstance(row.body, dict) for row in rows)
    assert list(ids) == [row.custom_id for row in rows]
    if cuts and not is_parquet and b"\n" in content:
        first, last = content.split(b"\n", 1)
        parts = [record for part in (first, last) for record in read_rows(scratch("rows.jsonl", part))]
        assert parts == rows
