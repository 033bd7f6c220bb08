"""Answer the waiting batches, their owners in turns, beside the requests of clients, which come first."""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import secrets
from collections.abc import Sequence
from typing import Any, NamedTuple

from starlette.applications import Starlette
from starlette.exceptions import HTTPException

from pumice.mcp import HostedTools
from pumice.plugin.unstable import BatchRow
from pumice_server.batch.results import is_failed
from pumice_server.batch.row_client import RowClient
from pumice_server.batch.rows import read_row
from pumice_server.batch.work import answer_all
from pumice_server.errors import UnwritableError, problem_of
from pumice_server.http.body import parse
from pumice_server.jobs.store import FINISHED, MAX_AGE, Batch, JobStore, StoredFile, now
from pumice_server.pools import FILES

MAX_ROWS = 50_000
MAX_ID = 512  # characters of a custom_id
TURN_ROWS = 1000  # rows of a batch that are answered before the next owner's turn
RETRY_SECONDS = 60.0  # before the next attempt where the disk is full
N_IN_FLIGHT = 8  # rows that are computed or wait in the engine
PRIORITY = 1000  # of rows that name none: requests of clients, which have 0, run first
MAX_CANCELLING = 8  # batches that are cancelled at a time

_NOT_RUN = {
    "expired": "the batch expired before this request was run",
    "cancelled": "the batch was cancelled before this request was run",
}

logger = logging.getLogger("pumice")


class InputRow(NamedTuple):
    """A row of a batch as it was sent: as a value it may take thirty times as much memory."""

    custom_id: str
    line: bytes


class WrongInput(Exception):
    """The input of a batch is malformed; ``line`` is its number, or None."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


class Jobs:
    """Files and batches of a server. Used by the event loop alone."""

    def __init__(self, store: JobStore, application: Starlette) -> None:
        """``application`` answers the rows, without asking for keys."""
        self.store = store
        self._application = application
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._running = ""  # id of the batch that is being answered
        self._cancelled = asyncio.Event()  # of that batch
        self._is_stopping = False
        self._reading = asyncio.Lock()  # held while the rows of a batch are read, which is much work
        self._n_cancelling = 0

    def run_tools(self, tools: HostedTools) -> None:
        """Let rows name tools of these MCP servers."""
        self._application.state.tools = tools

    def start(self) -> None:
        """Answer what waits, also from before the server was started again."""
        self._wake.set()
        if not self._is_stopping and self._task is None:
            self._task = asyncio.create_task(self._run())

    def end(self) -> None:
        """Begin to stop; what is not finished goes on when the server is started again."""
        self._is_stopping = True
        if self._task:
            self._task.cancel()

    async def stop(self) -> None:
        """Stop, and close the database."""
        self.end()
        if self._task:
            await asyncio.gather(self._task, return_exceptions=True)
        await FILES(self.store.database.close)

    async def cancel(self, batch: Batch) -> None:
        """Let a batch end with the results that it has. Raises HTTPException if too many are being cancelled."""
        if self._n_cancelling >= MAX_CANCELLING:
            raise HTTPException(503, f"{self._n_cancelling} batches are being cancelled: try again later")
        self._n_cancelling += 1
        try:
            await self._cancel(batch)
        finally:
            self._n_cancelling -= 1

    async def _cancel(self, batch: Batch) -> None:
        await FILES(self.store.change, batch["id"], status="cancelling", cancelling_at=now())
        if self._running != batch["id"]:
            with contextlib.suppress(WrongInput):
                await self._end(batch, "cancelled", await self._rows(batch))
        if self._running == batch["id"]:  # also if it began meanwhile
            self._cancelled.set()

    async def _run(self) -> None:
        """Answer batches for ever. If the disk is full, try again later."""
        owner = ""
        while True:
            self._wake.clear()
            pause = None
            try:
                if batch := await FILES(self.store.next_batch, owner):
                    owner = batch["owner"]
                    await self._attempt(batch)
                    continue
            except Exception as error:
                logger.error("batches wait: %s", _told(error))
                pause = RETRY_SECONDS
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wake.wait()

    async def _attempt(self, batch: Batch) -> None:
        """Answer rows of a batch, and end it if none is left or it fails. Raises UnwritableError."""
        self._running, self._cancelled = batch["id"], asyncio.Event()
        try:
            await self._answer_some(batch)
        except (asyncio.CancelledError, UnwritableError):
            raise
        except WrongInput as error:
            await self._fail(batch, str(error), error.line)
        except Exception as error:  # of too little room, or a defect; the next batch may do better
            logger.error("batch %s failed: %s", batch["id"], _told(error))
            await self._fail(batch, problem_of(error).message)
        finally:
            self._running = ""

    async def _fail(self, batch: Batch, message: str, line: int | None = None) -> None:
        problem = {"code": "invalid_request", "message": message, "line": line, "param": None}
        await self._end(batch, "failed", errors={"object": "list", "data": [problem]})

    async def _rows(self, batch: Batch) -> list[InputRow]:
        """Return the rows of a batch. Raises WrongInput."""
        async with self._reading:
            content = await FILES(self.store.input, batch["input_file_id"])
            return await FILES(read_input, content, batch["endpoint"])

    async def _answer_some(self, batch: Batch) -> None:
        """Answer rows of a batch: all of them, or those of one turn. Raises WrongInput."""
        rows = await self._rows(batch)
        counts = {"total": len(rows), "completed": 0, "failed": 0}
        begun = {"in_progress_at": batch["in_progress_at"] or now(), "request_counts": counts}
        if batch["status"] == "cancelling":
            self._cancelled.set()
        else:
            begun["status"] = "in_progress"
        changed = await FILES(self.store.change, batch["id"], **begun)
        if changed["status"] in FINISHED:  # it was cancelled meanwhile
            return
        done = await FILES(self.store.done, batch["id"])
        left = [row for row in rows if row.custom_id not in done]
        status = await self._answered(batch, left[:TURN_ROWS])
        if status != "completed" or len(left) <= TURN_ROWS:
            await self._end(batch, status, rows)

    async def _end(self, batch: Batch, status: str, rows: Sequence[InputRow] = (), **fields: Any) -> None:
        """End a batch; its results become files, with a line for each of the ``rows`` that was not run.

        Where there is no room for these lines, they are left out. Raises UnwritableError.
        """
        files = {name: _output(batch, name) for name in ("output_file_id", "error_file_id")}
        left = await FILES(lambda: [_not_run(row, status) for row in rows]) if status in _NOT_RUN else []
        fields = {"status": status, f"{status}_at": now(), **fields}
        try:
            await FILES(self.store.finish, batch["id"], files, left, **fields)
        except UnwritableError:
            raise
        except HTTPException as error:
            logger.error("batch %s: requests that were not run are left out: %s", batch["id"], error.detail)
            await FILES(self.store.finish, batch["id"], files, **fields)

    async def _answered(self, batch: Batch, rows: Sequence[InputRow]) -> str:
        """Answer rows, and return the status at the end."""
        work = asyncio.ensure_future(self._answer(batch, rows))
        stop = asyncio.ensure_future(self._cancelled.wait())
        left = max(0.0, batch["expires_at"] - now())
        try:
            await asyncio.wait({work, stop}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
                return "completed"
            return "cancelled" if stop.done() else "expired"
        finally:
            for task in (work, stop):
                task.cancel()
            await asyncio.gather(work, stop, return_exceptions=True)

    async def _answer(self, batch: Batch, rows: Sequence[InputRow]) -> None:
        async with RowClient(self._application, batch["owner"]) as client:

            async def answer(row: InputRow) -> dict[str, Any]:
                return await client.answer(await FILES(_request, row))

            results = answer_all(rows, answer, N_IN_FLIGHT)
            async with contextlib.aclosing(results):
                async for result in results:
                    if result["response"]["status_code"] == 401:
                        raise WrongInput(result["response"]["body"]["error"]["message"])
                    await FILES(self.store.add_result, batch["id"], result, is_failed(result))


def read_input(content: bytes, endpoint: str) -> list[InputRow]:
    """Return the rows of a batch. Raises WrongInput."""
    rows: list[InputRow] = []
    ids: set[str] = set()
    for number, line in enumerate(io.BytesIO(content), 1):
        if not line.strip():
            continue
        try:
            row = read_row(parse([line], Any))
        except HTTPException as error:
            raise WrongInput(f"line {number} {error.detail.removeprefix('the body ')}", number) from None
        except ValueError as error:
            raise WrongInput(f"line {number}: {error}", number) from None
        if row.url != endpoint:
            raise WrongInput(f"line {number}: url must be the batch's endpoint, {endpoint}, not {row.url}", number)
        if row.custom_id in ids or len(row.custom_id) > MAX_ID:
            what = "occurs twice" if row.custom_id in ids else f"has more than {MAX_ID} characters"
            raise WrongInput(f"line {number}: the custom_id {row.custom_id!r:.100} {what}", number)
        if len(rows) >= MAX_ROWS:
            raise WrongInput(f"the file has more than {MAX_ROWS} requests")
        ids.add(row.custom_id)
        rows.append(InputRow(row.custom_id, line))
    if not rows:
        raise WrongInput("the file has no requests")
    return rows


def _request(row: InputRow) -> BatchRow:
    read = read_row(parse([row.line], Any))
    return BatchRow(read.custom_id, read.url, {"priority": PRIORITY, **read.body})


def _not_run(row: InputRow, status: str) -> dict[str, Any]:
    """Return the result of a row that was not run, with the error that OpenAI's batches have."""
    error = {"code": f"batch_{status}", "message": _NOT_RUN[status]}
    return {"id": new_id("batch_req"), "custom_id": row.custom_id, "response": None, "error": error}


def _told(error: Exception) -> str:
    return error.detail if isinstance(error, HTTPException) else f"{type(error).__name__}: {error}"


def _output(batch: Batch, name: str) -> StoredFile:
    today = now()
    kind = name.removesuffix("_file_id")
    filename = f"{batch['id']}_{kind}.jsonl"
    return StoredFile(new_id("file"), batch["owner"], filename, "batch_output", today, today + MAX_AGE, 0)


def new_id(kind: str) -> str:
    """Return an id that cannot be guessed."""
    return f"{kind}-{secrets.token_hex(16)}" if kind == "file" else f"{kind}_{secrets.token_hex(16)}"
