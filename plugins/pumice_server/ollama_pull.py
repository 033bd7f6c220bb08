"""Ollama's ``pull``: a model is fetched, with progress, and served from then on. What changes models is not served."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from pumice_server.answers import Streaming, json_response, to_json, unless_gone
from pumice_server.body import Body
from pumice_server.entry import Spec
from pumice_server.errors import bad_request
from pumice_server.models import Models
from pumice_server.ollama import NDJSON
from pumice_server.pulls import Pull

_MAX_NAME = 500  # letters
_MAX_MODELS = 1000  # served: one model has many names, by case and host
_SUCCESS = {"status": "success"}


async def pull(request: Request) -> Response:
    """Names as ``pumice pull`` takes them; paths of this machine are none."""
    body = await Body.read(request)
    models: Models = request.app.state.models
    name = body.first("model", "name")
    if not isinstance(name, str) or not name or len(name) > _MAX_NAME or not name.isprintable():
        raise bad_request("model must be the name of a model")
    stream = body.get("stream", bool, True)
    if models.known(name):
        return _told(stream, [{"status": "pulling manifest"}, _SUCCESS])
    if not models.settings.allow_pull:
        raise HTTPException(403, "models are not fetched for clients: start the server with --allow-pull")
    if len(models.entries) >= _MAX_MODELS:
        raise HTTPException(503, f"{_MAX_MODELS} models are served already; the server's operator can start it again")
    pull = models.pulls.join(name)
    lines = _lines(models, name, pull)
    if stream:
        parts = (to_json(line) + b"\n" async for line in lines)
        return Streaming(parts, lambda: models.pulls.leave(name, pull), NDJSON)
    try:
        return json_response(await unless_gone(request, _last(lines)))
    finally:
        models.pulls.leave(name, pull)


async def refuse(request: Request) -> Response:
    raise HTTPException(501, "models are not made, copied or removed by clients: see pumice pull, list and rm")


def _told(stream: bool, lines: list[dict[str, Any]]) -> Response:
    if not stream:
        return json_response(lines[-1])

    async def parts() -> AsyncIterator[bytes]:
        for line in lines:
            yield to_json(line) + b"\n"

    return Streaming(parts(), lambda: None, NDJSON)


async def _lines(models: Models, name: str, pull: Pull) -> AsyncIterator[dict[str, Any]]:
    """Lines as Ollama has them. Raises what fetching raises."""
    yield {"status": "pulling manifest"}
    async for what, done, total in pull.follow():
        yield {"status": f"pulling {what}", "digest": what, "total": total, "completed": done}
    pulled = pull.result.result()
    options = models.entries[0].spec.options if models.entries else {}
    models.add(Spec([name], pulled.loads_as, options, pulled.size))
    yield _SUCCESS


async def _last(lines: AsyncIterator[dict[str, Any]]) -> dict[str, Any]:
    last = {}
    async for line in lines:
        last = line
    return last
