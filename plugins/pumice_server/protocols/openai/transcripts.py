"""Transcripts of Whisper, in the formats of OpenAI's answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

import pumice
from pumice.plugin.unstable import subrip, webvtt
from pumice_server.interface import MEDIA, Service, Streaming, bad_request, unless_gone
from pumice_server.protocols.openai.answer_types import (
    Transcription,
    TranscriptionEvent,
    TranscriptionSegment,
    TranscriptionUsage,
    TranscriptionWord,
)
from pumice_server.protocols.openai.bodies import TranscriptionBody

CHUNKS = 8
"""Windows of a sound that are heard at once with ``chunking_strategy``."""


async def answer(
    request: Request, service: Service, body: TranscriptionBody, audio: pumice.Audio, translates: bool
) -> Response | Transcription | Streaming[TranscriptionEvent]:
    """Return what is said in a sound; with ``stream`` an event for each segment. Raises RequestError."""
    if body.max_tokens >= 0:
        raise bad_request("max_tokens: a transcript of Whisper ends with the speech; leave it out")
    task, temperature = "translate" if translates else "transcribe", body.temperature or None
    granularities = (body.timestamp_granularities or "segment").split(",")
    options: dict[str, Any] = {"language": body.language, "task": task, "temperature": temperature}
    options |= {"hotwords": body.hotwords or "", "timestamps": "word" if "word" in granularities else "segment"}
    if body.chunking_strategy:
        options |= {"vad": "auto", "batch_size": CHUNKS}
    begun = MEDIA(service.model.speech.transcribe, audio, prompt=body.prompt or "", **options)
    transcript = await unless_gone(request, service.in_time(begun))
    if body.stream:
        return Streaming(_events(transcript), transcript.close)
    segments = await unless_gone(request, service.in_time(_all(transcript)))
    if body.response_format == "srt":
        return PlainTextResponse(subrip(segments))
    if body.response_format == "vtt":
        return PlainTextResponse(webvtt(segments), media_type="text/vtt")
    if body.response_format == "text":
        return PlainTextResponse(_text(segments) + "\n")
    answer = Transcription(text=_text(segments), usage=_usage(transcript))
    if body.response_format == "verbose_json":
        answer.task, answer.language = task, "english" if translates else transcript.language_name
        answer.duration = transcript.duration
        if "segment" in granularities:
            answer.segments = list(map(_described, segments))
        if "word" in granularities:
            answer.words = [
                TranscriptionWord(word=word.word.strip(), start=word.start, end=word.end)
                for segment in segments
                for word in segment.words or ()
            ]
    return answer


async def _all(transcript: pumice.Transcript) -> list[pumice.Segment]:
    return [segment async for segment in _decoded(transcript)]


async def _decoded(transcript: pumice.Transcript) -> AsyncIterator[pumice.Segment]:
    """Yield the segments of a transcript, which threads decode."""
    while (segment := await MEDIA(next, transcript, None)) is not None:
        yield segment


async def _events(transcript: pumice.Transcript) -> AsyncIterator[TranscriptionEvent]:
    segments: list[pumice.Segment] = []
    async for segment in _decoded(transcript):
        text = segment.text if segments else segment.text.lstrip()
        segments.append(segment)
        yield TranscriptionEvent(type="transcript.text.delta", delta=text)
    yield TranscriptionEvent(type="transcript.text.done", text=_text(segments), usage=_usage(transcript))


def _text(segments: list[pumice.Segment]) -> str:
    return "".join(segment.text for segment in segments).strip()


def _usage(transcript: pumice.Transcript) -> TranscriptionUsage:
    return TranscriptionUsage(type="duration", seconds=transcript.duration)


def _described(segment: pumice.Segment) -> TranscriptionSegment:
    return TranscriptionSegment(
        id=segment.id,
        seek=round(100 * segment.seek),
        start=segment.start,
        end=segment.end,
        text=segment.text,
        tokens=list(segment.tokens),
        temperature=segment.temperature,
        avg_logprob=segment.avg_logprob,
        compression_ratio=segment.compression_ratio,
        no_speech_prob=segment.no_speech_prob,
    )
