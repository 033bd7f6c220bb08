"""Ollama's ``pull``: a model is fetched, with progress, and served from then on. What changes models is not served."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from pumice.cli.options import fetch_model
from pumice_server.answers import Streaming, json_response, to_json
from pumice_server.body import Body
from pumice_server.entry import Spec
from pumice_server.errors import bad_request
from pumice_server.models import Models
from pumice_server.ollama import NDJSON

_NAME = re.compile(r"(hf\.co/|hf://|https://)?[\w-][\w.-]*(/[\w-][\w.-]*)*([:@][\w.-]+){0,2}")
_SUCCESS = {"status": "success"}


async def pull(request: Request) -> Response:
    """Names as ``pumice pull`` takes them; paths of this machine are none."""
    body = await Body.read(request)
    models: Models = request.app.state.models
    name = body.first("model", "name")
    if not isinstance(name, str) or not name:
        raise bad_request("model must be the name of a model")
    if models.known(name):
        return _told(body, [{"status": "pulling manifest"}, _SUCCESS])
    if not models.settings.allow_pull:
        raise HTTPException(403, "models are not fetched for clients: start the server with --allow-pull")
    if not _NAME.fullmatch(name):
        raise bad_request("model must be a name, such as hf.co/owner/repository:Q4_K_M")
    lines = _fetch(models, name)
    if body.get("stream", bool, True):
        return Streaming((to_json(line) + b"\n" async for line in lines), lambda: None, NDJSON)
    async for _ in lines:
        pass
    return json_response(_SUCCESS)


async def refuse(request: Request) -> Response:
    raise HTTPException(501, "models are not made, copied or removed by clients: see pumice pull, list and rm")


def _told(body: Body, lines: list[dict[str, Any]]) -> Response:
    if not body.get("stream", bool, True):
        return json_response(lines[-1])

    async def parts() -> AsyncIterator[bytes]:
        for line in lines:
            yield to_json(line) + b"\n"

    return Streaming(parts(), lambda: None, NDJSON)


async def _fetch(models: Models, name: str) -> AsyncIterator[dict[str, Any]]:
    """Lines as Ollama has them. Raises what fetching raises."""
    loop = asyncio.get_running_loop()
    progress: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    def tell(what: str, done: int, total: int) -> None:
        line = {"status": f"pulling {what}", "digest": what, "total": total, "completed": done}
        loop.call_soon_threadsafe(progress.put_nowait, line)

    yield {"status": "pulling manifest"}
    fetching = asyncio.ensure_future(asyncio.to_thread(fetch_model, name, tell))
    fetching.add_done_callback(lambda _: progress.put_nowait(_SUCCESS))
    while (line := await progress.get()) is not _SUCCESS:
        yield line
    size = (await fetching).stat().st_size
    options = models.entries[0].spec.options if models.entries else {}
    models.add(Spec([name], name, options, size))
    yield _SUCCESS
