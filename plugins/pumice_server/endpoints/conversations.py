"""Store conversations of the page in an SQLite database: ``pumice serve --conversations FILE``.

Each API key has its own conversations. Their contents are defined by the page.
"""

from __future__ import annotations

import re
import sqlite3
import threading
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from pumice_server.database import open_database
from pumice_server.errors import UnwritableError, bad_request
from pumice_server.http.answers import JSON, json_response, to_json
from pumice_server.http.body import read_body
from pumice_server.http.gate import scoped
from pumice_server.limits import MAX_CONVERSATIONS, MAX_SAID
from pumice_server.pools import FILES, share
from pumice_server.work import aside

_VERSION = 1  # of the schema, SQLite's user_version
_SCHEMA = """
CREATE TABLE conversation (owner TEXT, id TEXT, body TEXT NOT NULL, PRIMARY KEY (owner, id));
CREATE TABLE message (
    owner TEXT, conversation TEXT, id TEXT, body TEXT NOT NULL, PRIMARY KEY (owner, conversation, id),
    FOREIGN KEY (owner, conversation) REFERENCES conversation (owner, id) ON DELETE CASCADE
);
"""
_ID = re.compile(r"[A-Za-z0-9-]{1,64}")
_ROWS = 2  # that are read at once; each may have MAX_SAID characters


Row = tuple[int, str]
"""Number and body of a row."""


class Conversations:
    """The database. Bodies are JSON objects, as text."""

    def __init__(self, path: Path) -> None:
        """Open or create the database. Raises PumiceError if the file cannot be used."""
        self._lock = threading.Lock()
        self._database = open_database(path, _SCHEMA, _VERSION, ["conversation", "message"], "conversations")

    def list(self, owner: str, after: int) -> Sequence[Row]:
        """Return some conversations after a row."""
        return self._rows("SELECT rowid, body FROM conversation WHERE owner = ?", owner, after)

    def messages(self, owner: str, conversation: str, after: int) -> Sequence[Row]:
        """Return some messages of a conversation after a row."""
        select = "SELECT rowid, body FROM message WHERE owner = ? AND conversation = ?"
        return self._rows(select, owner, conversation, after)

    def put(self, owner: str, conversation: str, body: str) -> None:
        """Store a conversation. Raises HTTPException if its owner has no room for it."""
        where = "owner = ? AND id = ?"
        insert = "INSERT INTO conversation VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET body = excluded.body"
        self._put("conversation", where, insert, owner, conversation, body)

    def put_message(self, owner: str, conversation: str, message: str, body: str) -> None:
        """Store a message. Raises IntegrityError if there is no such conversation, and HTTPException as ``put``."""
        where = "owner = ? AND conversation = ? AND id = ?"
        insert = "INSERT INTO message VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET body = excluded.body"
        self._put("message", where, insert, owner, conversation, message, body)

    def remove(self, owner: str, conversation: str) -> None:
        with self._lock:
            freed = self._size("conversation", "owner = ? AND id = ?", owner, conversation)
            freed += self._size("message", "owner = ? AND conversation = ?", owner, conversation)
            self._execute("DELETE FROM conversation WHERE owner = ? AND id = ?", owner, conversation)
            self._sizes[owner] -= freed

    def _put(self, table: str, where: str, insert: str, owner: str, *values: str) -> None:
        *ids, body = values
        with self._lock:
            own = self._sizes[owner]
            n_more = len(body) - self._size(table, where, owner, *ids)
            most = share(MAX_CONVERSATIONS, owner, self._sizes.total() - own)
            if n_more > 0 and own + n_more > most:
                raise HTTPException(507, f"stored conversations have {own} characters, at most {most}: delete some")
            self._execute(insert, owner, *values)
            self._sizes[owner] += n_more

    @cached_property
    def _sizes(self) -> Counter[str]:
        """Characters of each owner, counted when they first matter: that reads the whole file."""
        count = "SELECT owner, sum(length(body)) FROM {} GROUP BY owner"
        tables = (self._execute(count.format(table)) for table in ("conversation", "message"))
        return sum((Counter(dict(rows)) for rows in tables), Counter[str]())

    def _size(self, table: str, where: str, *ids: str) -> int:
        ((size,),) = self._execute(f"SELECT coalesce(sum(length(body)), 0) FROM {table} WHERE {where}", *ids)
        return int(size)

    def _rows(self, select: str, *values: str | int) -> Sequence[Row]:
        with self._lock:
            return self._execute(f"{select} AND rowid > ? ORDER BY rowid LIMIT {_ROWS}", *values)

    def _execute(self, statement: str, *values: str | int) -> Sequence[Any]:
        return self._database.execute(statement, values).fetchall()


def routes(path: Path) -> list[Route]:
    """Return the endpoints under ``/conversations``. Raises PumiceError if the file cannot be used."""
    kept = Conversations(path)

    async def run(request: Request, work: Any, *values: str | int) -> Any:
        ids = list(request.path_params.values())
        if not all(map(_ID.fullmatch, ids)):
            raise bad_request("an id is 1 to 64 letters, digits and hyphens")
        try:
            return await FILES(work, request.state.client, *ids, *values)
        except sqlite3.IntegrityError:
            raise HTTPException(404, f"there is no conversation {ids[0]}") from None
        except sqlite3.Error as error:
            raise UnwritableError("conversations", error) from None

    async def get(request: Request) -> Response:
        work = kept.messages if request.path_params else kept.list
        first = await run(request, work, -1)

        async def parts() -> AsyncIterator[bytes]:
            rows, mark = first, b"["
            while rows:
                for _, body in rows:
                    yield mark + body.encode()
                    mark = b","
                rows = await run(request, work, rows[-1][0])
            yield b"]" if first else b"[]"

        return StreamingResponse(parts(), media_type=JSON)

    async def put(request: Request) -> Response:
        body = await read_body(request, dict[str, Any])
        work = kept.put_message if "message" in request.path_params else kept.put
        text = await aside(lambda: to_json(body).decode())
        if len(text) > MAX_SAID:
            raise bad_request(f"a conversation or a message has at most {MAX_SAID} characters, not {len(text)}")
        await run(request, work, text)
        return json_response({})

    async def remove(request: Request) -> Response:
        await run(request, kept.remove)
        return json_response({})

    one = "/conversations/{conversation}"
    return [
        Route("/conversations", scoped(get, "infer"), methods=["GET"]),
        Route(one, scoped(put, "infer"), methods=["PUT"]),
        Route(one, scoped(remove, "infer"), methods=["DELETE"]),
        Route(f"{one}/messages", scoped(get, "infer"), methods=["GET"]),
        Route(f"{one}/messages/{{message}}", scoped(put, "infer"), methods=["PUT"]),
    ]
