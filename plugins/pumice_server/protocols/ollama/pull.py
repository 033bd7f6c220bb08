"""Endpoint for Ollama's ``pull``: fetch a model, report progress, and serve it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from pumice_server.catalogue import Pull, begin_pull, read_name
from pumice_server.interface import NDJSON, Models, Streaming, json_response, unless_gone
from pumice_server.protocols.ollama.bodies import OllamaPullBody

_SUCCESS = {"status": "success"}


async def pull(request: Request, body: OllamaPullBody) -> Response:
    """Fetch a model and serve it, with ``--allow-pull``. Names are those of ``pumice pull``, but no paths."""
    models: Models = request.app.state.models
    name = read_name(body.named)
    if models.known(name):
        return progress(body.stream, [{"status": "pulling manifest"}, _SUCCESS])
    pull = begin_pull(models, name)
    lines = _lines(models, name, pull)
    if body.stream:
        return Streaming(lines, lambda: models.pulls.leave(name, pull), NDJSON)
    try:
        return json_response(await unless_gone(request, _last(lines)))
    finally:
        models.pulls.leave(name, pull)


def progress(stream: bool, lines: list[dict[str, Any]]) -> Response:
    """Return the lines of finished work, or the last of them."""
    if not stream:
        return json_response(lines[-1])

    async def parts() -> AsyncIterator[dict[str, Any]]:
        for line in lines:
            yield line

    return Streaming(parts(), lambda: None, NDJSON)


async def _lines(models: Models, name: str, pull: Pull) -> AsyncIterator[dict[str, Any]]:
    """Yield lines in Ollama's form. Raises the errors of fetching."""
    yield {"status": "pulling manifest"}
    async for what, done, total in pull.follow():
        yield {"status": f"pulling {what}", "digest": what, "total": total, "completed": done}
    models.add(name, pull.result.result())
    yield _SUCCESS


async def _last(lines: AsyncIterator[dict[str, Any]]) -> dict[str, Any]:
    last = {}
    async for line in lines:
        last = line
    return last
