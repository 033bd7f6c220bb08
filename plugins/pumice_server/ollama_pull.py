"""Endpoint for Ollama's ``pull``: fetch a model, report progress, and serve it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from pumice_server.answers import Streaming, json_response, to_json, unless_gone
from pumice_server.bodies import OllamaPullBody
from pumice_server.errors import bad_request
from pumice_server.models import Models
from pumice_server.ollama import NDJSON
from pumice_server.pulls import Pull, Pulled

_MAX_NAME = 500  # characters
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
        parts = (to_json(line) + b"\n" async for line in lines)
        return Streaming(parts, lambda: models.pulls.leave(name, pull), NDJSON)
    try:
        return json_response(await unless_gone(request, _last(lines)))
    finally:
        models.pulls.leave(name, pull)


def read_name(name: str | None) -> str:
    """Return the name of a model to fetch. Raises HTTPException."""
    if not name or len(name) > _MAX_NAME or not name.isprintable():
        raise bad_request(f"model must be the name of a model, of at most {_MAX_NAME} printable characters")
    return name


def begin_pull(models: Models, name: str) -> Pull:
    """Return the download of a model, which the caller leaves. Raises HTTPException."""
    if not models.settings.allow_pull:
        raise HTTPException(403, "clients may not fetch models: start the server with --allow-pull")
    models.check_number(name)
    return models.pulls.join(name)


def serve_pulled(models: Models, name: str, pulled: Pulled) -> None:
    """Serve a model that was fetched."""
    models.add(name, pulled)


def progress(stream: bool, lines: list[dict[str, Any]]) -> Response:
    """Return the lines of finished work, or the last of them."""
    if not stream:
        return json_response(lines[-1])

    async def parts() -> AsyncIterator[bytes]:
        for line in lines:
            yield to_json(line) + b"\n"

    return Streaming(parts(), lambda: None, NDJSON)


async def _lines(models: Models, name: str, pull: Pull) -> AsyncIterator[dict[str, Any]]:
    """Yield lines in Ollama's form. Raises the errors of fetching."""
    yield {"status": "pulling manifest"}
    async for what, done, total in pull.follow():
        yield {"status": f"pulling {what}", "digest": what, "total": total, "completed": done}
    serve_pulled(models, name, pull.result.result())
    yield _SUCCESS


async def _last(lines: AsyncIterator[dict[str, Any]]) -> dict[str, Any]:
    last = {}
    async for line in lines:
        last = line
    return last
