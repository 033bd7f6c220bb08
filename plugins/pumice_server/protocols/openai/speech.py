"""OpenAI's speech: a text as sound, by models that generate audio codes, and by speech models."""

from __future__ import annotations

import base64
import logging
from asyncio import wrap_future
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import StreamingResponse
from starlette.types import Send

import pumice
from pumice.plugin.unstable import SOUND_TYPES, SoundWriter, encode_file
from pumice_server.interface import (
    PREPARATION,
    Service,
    Streaming,
    Whole,
    bad_request,
    service_of,
    too_late,
    unless_gone,
)
from pumice_server.protocols.openai.answer_types import SpeechEvent, SpeechUsage
from pumice_server.protocols.openai.bodies import SpeechBody

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Samples = NDArray[np.float32]

Piece = pumice.SpeechPiece | pumice.FramePiece

RATE = 24_000  # samples a second
DEFAULT_VOICE = "default"
"""Name for a voice that the model chooses."""

logger = logging.getLogger("pumice")


@dataclass
class _Tokens:
    """Tokens of a speech so far."""

    read: int = 0
    generated: int = 0

    def add(self, read: int, generated: int) -> None:
        self.read += read
        self.generated += generated

    @property
    def usage(self) -> SpeechUsage:
        total = self.read + self.generated
        return SpeechUsage(input_tokens=self.read, output_tokens=self.generated, total_tokens=total)


async def speech(request: Request, body: SpeechBody) -> Whole[bytes] | _SoundStream | Streaming[SpeechEvent]:
    """Speak a text: the answer is a file of sound, streamed if the text has several parts."""
    if body.speed != 1:
        raise bad_request(f"speed is {body.speed:g}; speech models have one speed, 1")
    service = await service_of(request, body.model)
    service.model.speech.check()
    voice = _voice(service, body.voice)
    settings: dict[str, Any] = {"temperature": body.temperature, "seed": body.seed, "language": body.language or ""}
    settings |= {"voice": voice, "timeout": service.timeout, "max_seconds": body.max_seconds}
    pieces = await PREPARATION(service.model.speech.pieces, body.input, **settings)
    writer = await PREPARATION(SoundWriter, body.response_format, RATE)
    tokens = _Tokens()
    parts = _spoken(service, pieces, body, tokens, request.state.cache_salt)
    first = await unless_gone(request, anext(parts))
    if body.stream_format == "sse":
        return Streaming(_events(first, parts, writer, tokens), lambda: None)
    media_type = SOUND_TYPES[body.response_format]
    if len(pieces) == 1 and isinstance(pieces[0], pumice.SpeechPiece):
        await parts.aclose()
        return Whole(await PREPARATION(encode_file, first, RATE, body.response_format), media_type=media_type)
    return _SoundStream(_written(first, parts, writer), media_type=media_type)


def _voice(service: Service, name: str) -> pumice.Voice | pumice.Audio | str | None:
    """Return a voice by its name; None for the default. Raises HTTPException for one that is not served."""
    if name == DEFAULT_VOICE:
        return None
    if name not in service.voices and service.model.speech.has_voice(name):
        return name
    if name not in service.voices:
        served = ", ".join([DEFAULT_VOICE, *sorted(service.voices)[:20]])
        raise bad_request(f"voice: there is no voice {name!r}; served: {served} (--voices names a folder of more)")
    return service.voices[name]


async def _spoken(
    service: Service, pieces: Sequence[Piece], body: SpeechBody, tokens: _Tokens, salt: str
) -> AsyncGenerator[Samples, None]:
    """Yield the samples as they come. Closing the generator ends the computation."""
    left = round(body.max_seconds * RATE)
    for piece in pieces:
        sound = (
            _framed(service, piece, tokens)
            if isinstance(piece, pumice.FramePiece)
            else _coded(service, piece, tokens, salt)
        )
        async with aclosing(sound) as parts:
            async for samples in parts:
                yield samples[:left]
                left -= len(samples)
                if left <= 0:
                    return


async def _framed(service: Service, piece: pumice.FramePiece, tokens: _Tokens) -> AsyncGenerator[Samples, None]:
    """Yield the samples of a piece by a speech model."""
    speech = service.model.speech.open(piece)
    try:
        while (part := await wrap_future(speech.next())) is not None:
            yield part
    finally:
        speech.close()
        tokens.add(len(piece.spoken.tokens), speech.n_frames)


async def _coded(
    service: Service, piece: pumice.SpeechPiece, tokens: _Tokens, salt: str
) -> AsyncGenerator[Samples, None]:
    """Yield the samples of a piece by a model of audio codes."""
    options = {**piece.options, "cache_salt": salt}
    (stream,) = streams = await service.complete([piece.prompt], 1, options)
    try:
        done = await stream.completion()
    finally:
        service.end(streams)
    if done.finish_reason == "timeout":
        raise too_late()
    tokens.add(done.timings.prompt_tokens, done.timings.generated_tokens)
    decoding = service.model.speech.decode(done)
    yield await service.in_time(wrap_future(decoding))


async def _written(
    first: Samples, parts: AsyncGenerator[Samples, None], writer: SoundWriter
) -> AsyncGenerator[bytes, None]:
    """Yield the bytes of a file of sound."""
    try:
        yield await PREPARATION(writer.write, first)
        async for samples in parts:
            yield await PREPARATION(writer.write, samples)
        yield await PREPARATION(writer.end)
    finally:
        await parts.aclose()


async def _events(
    first: Samples, parts: AsyncGenerator[Samples, None], writer: SoundWriter, tokens: _Tokens
) -> AsyncGenerator[SpeechEvent, None]:
    async for data in _written(first, parts, writer):
        if data:
            yield await PREPARATION(_delta, data)
    yield SpeechEvent(type="speech.audio.done", usage=tokens.usage)


def _delta(data: bytes) -> SpeechEvent:
    return SpeechEvent(type="speech.audio.delta", audio=base64.b64encode(data).decode())


class _SoundStream(StreamingResponse):
    """Sends a file of sound as it comes. After an error it ends without the last part, so that clients notice."""

    async def stream_response(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        try:
            async for part in self.body_iterator:
                if part:
                    await send({"type": "http.response.body", "body": part, "more_body": True})
        except ClientDisconnect:
            raise
        except Exception as error:
            logger.error("a speech ended early: %s: %s", type(error).__name__, error)
            return
        await send({"type": "http.response.body", "body": b"", "more_body": False})
