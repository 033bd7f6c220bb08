"""Endpoints of OpenAI's files and batches, with ``--batches``."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from pumice.plugin.unstable import Endpoint, ServerProtocol
from pumice_server.answer_types import Deleted
from pumice_server.batch.rows import URLS
from pumice_server.errors import bad_request
from pumice_server.field_types import Name, Short, Word
from pumice_server.http.answers import json_response
from pumice_server.http.body import Body, arriving
from pumice_server.http.routes import delete, get, post
from pumice_server.jobs.answer_types import BatchList, BatchObject, FileList, FileObject
from pumice_server.jobs.form import Field, read_form
from pumice_server.jobs.runner import Jobs, new_id
from pumice_server.jobs.store import BATCH_SECONDS, MAX_AGE, StoredFile, now
from pumice_server.limits import MAX_NAME
from pumice_server.pools import FILES
from pumice_server.settings import Settings


class BatchBody(Body, kw_only=True):
    """A file of requests to answer in the background."""

    input_file_id: Name
    """Id of the file, a line for each request."""
    endpoint: Name
    """Path of all requests, such as `/v1/chat/completions`."""
    completion_window: Literal["24h"] = "24h"
    """Time after which the batch ends with the answers that it has."""
    metadata: Annotated[dict[Word, Short], Meta(max_length=16)] | None = None
    """Returned with the batch: at most 16 texts, under keys of at most 64 characters."""


_MAX_PAGE = 10_000  # files of an answer; batches: 100
_MIN_AGE = 3600  # seconds, as OpenAI's
_TIMES = ("in_progress", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled")


async def upload(request: Request) -> FileObject:
    """Keep a file of requests, sent as a form with `file` and `purpose`, which is `batch`."""
    jobs = jobs_of(request)
    async with arriving(request) as parts:
        form = await FILES(lambda: read_form(request.headers.get("content-type", ""), b"".join(parts)))
    if "file" not in form:
        raise bad_request("the form has no field 'file'")
    if _text(form, "purpose") != "batch":
        raise bad_request("purpose must be 'batch': other files have no use here")
    content, filename = form["file"]
    if not content or len(filename or "") > MAX_NAME:
        raise bad_request(f"file must not be empty, and its name has at most {MAX_NAME} characters")
    today = now()
    age = _age(_text(form, "expires_after[seconds]"))
    file = StoredFile(
        new_id("file"), request.state.client, filename or "upload.jsonl", "batch", today, today + age, len(content)
    )
    await FILES(jobs.store.add_file, file, content)
    return file.answer()


async def list_files(request: Request) -> FileList:
    """List the files of this client, the newest first.

    ``?after=``: Id of the last file of the page before. ``?limit=``: Most files of a page.
    ``?order=``: `asc` or `desc`. ``?purpose=``: Only files of this purpose.
    """
    store, purpose = jobs_of(request).store, request.query_params.get("purpose")

    def listed() -> list[FileObject]:
        return [file.answer() for file in store.files(request.state.client) if purpose in (None, file.purpose)]

    items = await FILES(listed)
    if request.query_params.get("order") == "asc":
        items.reverse()
    limit, after = _asked(request, _MAX_PAGE)
    ids = [item.id for item in items]
    if after and after not in ids:
        raise bad_request(f"after: there is no {after!r:.100}")
    begin = ids.index(after) + 1 if after else 0
    page = items[begin : begin + limit]
    return FileList(object="list", data=page, **_page([item.id for item in page], begin + limit < len(items)))


async def show_file(request: Request) -> FileObject:
    """Describe a file."""
    file = await FILES(jobs_of(request).store.file, request.state.client, request.path_params["id"])
    return file.answer()


async def file_content(request: Request) -> Response:
    """Return the content of a file."""
    store = jobs_of(request).store
    file = await FILES(store.file, request.state.client, request.path_params["id"])

    async def parts() -> AsyncIterator[bytes]:
        for number in itertools.count():
            part = await FILES(store.part, file.id, number)
            if not part:
                return
            yield part

    return StreamingResponse(parts(), 200, {"Content-Length": str(file.bytes)}, "application/octet-stream")


async def delete_file(request: Request) -> Deleted:
    """Delete a file that no unfinished batch reads."""
    id = request.path_params["id"]
    await FILES(jobs_of(request).store.delete_file, request.state.client, id)
    return Deleted(id=id, object="file", deleted=True)


async def create_batch(request: Request, body: BatchBody) -> Annotated[Response, BatchObject]:
    """Answer the requests of a file in the background. Requests of clients come first."""
    jobs = jobs_of(request)
    if body.endpoint not in URLS:
        raise bad_request(f"endpoint must be one of {', '.join(URLS)}, not {body.endpoint!r:.60}")
    today = now()
    batch: dict[str, Any] = {
        "id": new_id("batch"),
        "object": "batch",
        "endpoint": body.endpoint,
        "errors": None,
        "input_file_id": body.input_file_id,
        "completion_window": body.completion_window,
        "status": "validating",
        "output_file_id": None,
        "error_file_id": None,
        "created_at": today,
        "expires_at": today + BATCH_SECONDS,
        **{f"{name}_at": None for name in _TIMES},
        "request_counts": {"total": 0, "completed": 0, "failed": 0},
        "metadata": body.metadata,
    }
    await FILES(jobs.store.add_batch, request.state.client, batch)
    jobs.start()
    return json_response(batch)


async def list_batches(request: Request) -> Annotated[Response, BatchList]:
    """List the batches of this client, the newest first.

    ``?after=``: Id of the last batch of the page before. ``?limit=``: Most batches of a page.
    """
    limit, after = _asked(request, 100, 20)
    batches = await FILES(jobs_of(request).store.batches, request.state.client, after, limit + 1)
    page = batches[:limit]
    return json_response(
        {"object": "list", "data": page, **_page([batch["id"] for batch in page], len(batches) > limit)}
    )


async def show_batch(request: Request) -> Annotated[Response, BatchObject]:
    """Describe a batch: its state, and how many requests are answered."""
    batch = await FILES(jobs_of(request).store.batch, request.state.client, request.path_params["id"])
    return json_response(batch)


async def cancel_batch(request: Request) -> Annotated[Response, BatchObject]:
    """Cancel a batch; the answers so far become a file."""
    jobs = jobs_of(request)
    owner, id = request.state.client, request.path_params["id"]
    batch = await FILES(jobs.store.batch, owner, id)
    if batch["status"] not in ("validating", "in_progress", "cancelling"):
        raise HTTPException(409, f"the batch is {batch['status']} already")
    await jobs.cancel({**batch, "owner": owner})
    return json_response(await FILES(jobs.store.batch, owner, id))


def jobs_of(request: Request) -> Jobs:
    """Return the server's jobs. Raises HTTPException if the server keeps none."""
    jobs: Jobs | None = request.app.state.jobs
    if jobs is None:
        raise HTTPException(501, "files and batches are not kept: start the server with --batches")
    return jobs


def _text(form: Mapping[str, Field], name: str) -> str:
    return form[name].content.decode("utf-8", "replace") if name in form else ""


def _age(seconds: str) -> int:
    """Return the seconds that a file is kept. Raises HTTPException."""
    if not seconds:
        return MAX_AGE
    if not (seconds.isdecimal() and len(seconds) < 9 and _MIN_AGE <= int(seconds) <= MAX_AGE):
        raise bad_request(f"expires_after[seconds] must be between {_MIN_AGE} and {MAX_AGE}, not {seconds!r:.60}")
    return int(seconds)


def _asked(request: Request, most: int, usual: int | None = None) -> tuple[int, str | None]:
    """Return the length of a page, and the id after which it begins. Raises HTTPException."""
    limit = request.query_params.get("limit", str(usual or most))
    if not (limit.isdecimal() and len(limit) < 9 and 1 <= int(limit) <= most):
        raise bad_request(f"limit must be between 1 and {most}, not {limit!r:.60}")
    return int(limit), request.query_params.get("after")


def _page(ids: Sequence[str], has_more: bool) -> dict[str, Any]:
    """Return the fields of a page beside its items."""
    return {"first_id": ids[0] if ids else None, "last_id": ids[-1] if ids else None, "has_more": has_more}


def endpoints(settings: Settings) -> Sequence[Endpoint]:
    return [
        get(list_files, "/v1/files"),
        get(show_file, "/v1/files/{id}"),
        get(file_content, "/v1/files/{id}/content"),
        get(list_batches, "/v1/batches"),
        get(show_batch, "/v1/batches/{id}"),
        post(upload, "/v1/files"),
        post(create_batch, "/v1/batches"),
        post(cancel_batch, "/v1/batches/{id}/cancel"),
        delete(delete_file, "/v1/files/{id}"),
    ]


PROTOCOL = ServerProtocol("OpenAI", endpoints)
