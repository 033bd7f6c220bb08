"""Hugging Face's TGI: ``POST /generate`` completes a prompt."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Annotated, Any

from msgspec import Meta, Struct, field
from starlette.requests import Request

import pumice
from pumice.plugin.unstable import Endpoint, Problem, ServerProtocol
from pumice_server import interface as server


class Parameters(server.Generation):
    """Parameters of TGI, beside those of every protocol, such as `temperature` and `top_k`."""

    max_new_tokens: Annotated[int, Meta(ge=1, le=2**31 - 1)] = 100
    """Maximum tokens of the text."""

    def token_limit(self) -> int:
        return self.max_new_tokens


class GenerateBody(server.Body, kw_only=True):
    """A prompt to complete."""

    inputs: str
    """Text of the prompt."""
    parameters: Parameters = field(default_factory=Parameters)
    """Parameters of the generation."""
    stream: bool = False
    """Send the text in parts, as server-sent events."""


class Generated(Struct):
    """A completion, or the next part of a stream."""

    generated_text: str
    """The text."""
    finish_reason: str | None = None
    """`stop` or `length`, at the end."""


async def generate(request: Request, body: GenerateBody) -> Generated | server.Streaming[Generated]:
    """Complete a prompt."""
    service = await server.service_of(request)  # the model stays loaded until the response has ended
    options = await body.aside(server.generation_options, body.parameters, service)
    options |= server.caching_options(request, body.parameters)
    streams = await server.unless_gone(request, service.complete([body.inputs], 1, options))
    if body.stream:
        return server.Streaming(parts(streams), lambda: service.end(streams))
    (done,) = await server.unless_gone(request, service.gather(streams))
    return Generated(done.text, server.finish_reason(done.finish_reason))


async def parts(streams: Sequence[pumice.AsyncStream]) -> AsyncIterator[Generated]:
    async for _, pieces in server.merge(streams):
        text, ended = "".join(piece.text for piece in pieces), pieces[-1].finish_reason
        yield Generated(text, server.finish_reason(ended) if ended else None)


def error(problem: Problem, request_id: str) -> Mapping[str, Any]:
    return {"error": problem.message, "error_type": problem.type}


def endpoints(settings: server.Settings) -> Sequence[Endpoint]:
    return [server.post(generate, "/generate")]


PROTOCOL = ServerProtocol("TGI", endpoints, "/generate", error)
