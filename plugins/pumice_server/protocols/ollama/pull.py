"""Endpoint for Ollama's ``pull``: fetch a model, report progress, and serve it."""

from __future__ import annotations

from collections.abc import AsyncIterator

from starlette.requests import Request

from pumice_server.catalogue import Pull, begin_pull, read_name
from pumice_server.interface import NDJSON, Models, Streaming, unless_gone
from pumice_server.protocols.ollama.answer_types import OllamaStatus
from pumice_server.protocols.ollama.bodies import OllamaPullBody

_SUCCESS = OllamaStatus(status="success")


async def pull(request: Request, body: OllamaPullBody) -> OllamaStatus | Streaming[OllamaStatus]:
    """Fetch a model and serve it, with ``--allow-pull``. Names are those of ``pumice pull``, but no paths."""
    models: Models = request.app.state.models
    name = read_name(body.named)
    if models.known(name):
        return progress(body.stream, [OllamaStatus(status="pulling manifest"), _SUCCESS])
    pull = begin_pull(models, name)
    lines = _lines(models, name, pull)
    if body.stream:
        return Streaming(lines, lambda: models.pulls.leave(name, pull), NDJSON)
    try:
        return await unless_gone(request, _last(lines))
    finally:
        models.pulls.leave(name, pull)


def progress(stream: bool, lines: list[OllamaStatus]) -> OllamaStatus | Streaming[OllamaStatus]:
    """Return the lines of finished work, or the last of them."""
    if not stream:
        return lines[-1]

    async def parts() -> AsyncIterator[OllamaStatus]:
        for line in lines:
            yield line

    return Streaming(parts(), lambda: None, NDJSON)


async def _lines(models: Models, name: str, pull: Pull) -> AsyncIterator[OllamaStatus]:
    """Yield lines in Ollama's format. Raises the errors of fetching."""
    yield OllamaStatus(status="pulling manifest")
    async for what, done, total in pull.follow():
        yield OllamaStatus(status=f"pulling {what}", digest=what, total=total, completed=done)
    await models.add(name, pull.result.result())
    yield _SUCCESS


async def _last(lines: AsyncIterator[OllamaStatus]) -> OllamaStatus:
    return [line async for line in lines][-1]
