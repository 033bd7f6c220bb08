"""llama-server's endpoints for kept streams: read one again, stop it, list them."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from pumice_server.interface import KeptStreams, bad_request
from pumice_server.protocols.llama_server.answer_types import KeptStreamState
from pumice_server.protocols.llama_server.bodies import StreamLookupBody


async def resume(request: Request) -> Response:
    """Read a conversation's stream again, from the byte `from`."""
    begin = request.query_params.get("from", "0")
    if not begin.isdecimal() or len(begin) > 15:
        raise bad_request(f"from: expected a number of bytes, not {begin!r:.40}")
    stream = _streams(request).find(_id(request), request.state.client)
    if stream is None:
        raise HTTPException(404, "no stream is kept for this conversation")
    stream.check_kept(int(begin))
    return _streams(request).read(stream, int(begin))


async def stop(request: Request) -> Response:
    """Stop a conversation's stream, and forget it."""
    _streams(request).stop(_id(request), request.state.client)
    return Response(status_code=204)


async def lookup(request: Request, body: StreamLookupBody) -> list[KeptStreamState]:
    """List the kept streams of conversations that the client names."""
    kept = [(id, _streams(request).find(id, request.state.client)) for id in body.conversation_ids]
    return [
        KeptStreamState(
            conversation_id=id,
            is_done=stream.is_done,
            total_bytes=stream.total,
            started_at=int(1000 * stream.started),
            completed_at=int(1000 * (stream.completed or 0.0)),
        )
        for id, stream in kept
        if stream
    ]


def _streams(request: Request) -> KeptStreams:
    streams: KeptStreams = request.app.state.streams
    return streams


def _id(request: Request) -> str:
    """Return the id of a conversation, in the path or as ``conv_id``."""
    id = request.path_params.get("id") or request.query_params.get("conv_id")
    if not id:
        raise bad_request("conv_id is missing: the id of the conversation")
    return str(id)
