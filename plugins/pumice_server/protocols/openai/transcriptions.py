"""OpenAI's transcriptions and translations of speech, by models that hear."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

import pumice
from pumice.plugin.unstable import pieces, subrip, webvtt
from pumice_server.interface import (
    MEDIA,
    PREPARATION,
    Field,
    MediaPrompt,
    Service,
    Streaming,
    arriving,
    bad_request,
    caching_options,
    merge,
    read_form,
    service_of,
    unless_gone,
)
from pumice_server.protocols.openai import transcripts
from pumice_server.protocols.openai.answer_types import (
    InputDetails,
    Transcription,
    TranscriptionEvent,
    TranscriptionSegment,
    TranscriptionUsage,
)
from pumice_server.protocols.openai.bodies import ChatBody, TranscriptionBody
from pumice_server.protocols.openai.chat import chat_options

_TRANSCRIBE = "[TRANSCRIBE]"
"""Token that begins a transcription in Voxtral's vocabulary."""
_ASR_TEXT = "<asr_text>"
"""Token after the language in answers of Qwen3-ASR, which transcribes without being asked."""
_LANGUAGE_IS = "language "
_MOST_LANGUAGE = 64  # characters before that token
_LANGUAGE = re.compile("[A-Za-z][A-Za-z -]*")
_NUMBERS = ("temperature", "max_tokens")
_FLAGS = ("stream",)
_TIMED = ("verbose_json", "srt", "vtt")
_GRANULARITIES = {"segment", "word"}
RATE = pumice.Audio.RATE
Done = pumice.Completion | pumice.ChatCompletion
Streams = Sequence[pumice.AsyncChatStream] | Sequence[pumice.AsyncStream]


@dataclass(frozen=True)
class Segment:
    """A piece of a sound, from second ``start`` to ``end``, and what is said in it."""

    start: float
    end: float
    text: str


async def transcriptions(request: Request) -> Response | Transcription | Streaming[TranscriptionEvent]:
    """Write down what is said in a sound, sent as a form with `file` and the fields of `TranscriptionBody`."""
    return await _written(request, translates=False)


async def translations(request: Request) -> Response | Transcription | Streaming[TranscriptionEvent]:
    """Like transcriptions, in English."""
    return await _written(request, translates=True)


async def _written(request: Request, translates: bool) -> Response | Transcription | Streaming[TranscriptionEvent]:
    async with arriving(request) as parts:
        head = request.headers.get("content-type", "")
        form = await PREPARATION(lambda: read_form(head, b"".join(parts)))
    body, audio = _read(form)
    service = await service_of(request, body.model)
    service.model.media.check("audio")
    if service.model.speech.transcribes:
        return await transcripts.answer(request, service, body, audio, translates)
    if body.timestamp_granularities not in (None, "segment"):
        raise bad_request(
            "timestamp_granularities: this model has no timestamps of words; leave it out, or use Whisper"
        )
    if body.response_format in _TIMED and not body.stream:
        return await _timed(request, service, body, audio, translates)
    streams, n_audio = await unless_gone(request, _start(request, service, body, audio, translates))
    if body.stream:
        return Streaming(_events(streams, n_audio), lambda: service.end(streams))
    (done,) = await unless_gone(request, service.gather(streams))
    text = _text(done)
    if body.response_format == "text":
        return PlainTextResponse(text + "\n")
    return Transcription(text=text, usage=_usage(streams[0].timings, n_audio))


async def _timed(
    request: Request, service: Service, body: TranscriptionBody, audio: pumice.Audio, translates: bool
) -> Response | Transcription:
    """Return what is said in each piece of a sound, one after the other, with the times of the pieces."""
    samples = await service.in_time(MEDIA(audio.samples))
    segments: list[Segment] = []
    for start, end in pieces(samples):
        piece = pumice.Audio(samples[start:end], rate=RATE)
        streams, _ = await unless_gone(request, _start(request, service, body, piece, translates))
        (done,) = await unless_gone(request, service.gather(streams))
        segments.append(Segment(start / RATE, end / RATE, _text(done)))
    if body.response_format == "srt":
        return PlainTextResponse(subrip(segments))
    if body.response_format == "vtt":
        return PlainTextResponse(webvtt(segments), media_type="text/vtt")
    seconds = len(samples) / RATE
    return Transcription(
        task="translate" if translates else "transcribe",
        language="english" if translates else body.language or "unknown",
        duration=seconds,
        text=" ".join(segment.text for segment in segments if segment.text),
        segments=[_described(service, body, number, segment) for number, segment in enumerate(segments)],
        usage=TranscriptionUsage(type="duration", seconds=seconds),
    )


def _described(service: Service, body: TranscriptionBody, number: int, segment: Segment) -> TranscriptionSegment:
    return TranscriptionSegment(
        id=number,
        seek=round(100 * segment.start),
        start=segment.start,
        end=segment.end,
        text=segment.text,
        tokens=service.model.tokenizer.tokenize(segment.text, add_special=False),
        temperature=body.temperature,
    )


def _read(form: Mapping[str, Field]) -> tuple[TranscriptionBody, pumice.Audio]:
    """Return the fields of a form, and its file. Raises HTTPException."""
    if "file" not in form:
        raise bad_request("the form has no field 'file' with a sound")
    if not form["file"].content:
        raise bad_request("file: the sound is empty")
    fields: dict[str, Any] = {}
    for name, field in form.items():
        if name == "file":
            continue
        try:
            text = field.content.decode()
        except UnicodeDecodeError:
            raise bad_request(f"{name!r:.100} is not UTF-8") from None
        fields[name.removesuffix("[]")] = _value(name, text)
    body = TranscriptionBody.of(fields)
    if body.language and not _LANGUAGE.fullmatch(body.language):
        raise bad_request(f"language: expected a code such as 'en', or a name, not {body.language!r}")
    if body.timestamp_granularities and not set(body.timestamp_granularities.split(",")) <= _GRANULARITIES:
        raise bad_request(
            f"timestamp_granularities: expected 'segment', 'word' or both, not {body.timestamp_granularities!r}"
        )
    if body.timestamp_granularities and body.response_format != "verbose_json":
        raise bad_request("timestamp_granularities: response_format must be 'verbose_json'")
    if body.stream and body.response_format in ("srt", "vtt"):
        raise bad_request(
            f"stream: subtitles are not streamed; leave it out, or response_format {body.response_format!r}"
        )
    return body, pumice.Audio(form["file"].content)


def _value(name: str, text: str) -> object:
    """Return the value of a field, which a form has as text. Other values than a field's are refused later."""
    if name in _FLAGS:
        return {"true": True, "false": False}.get(text.lower(), text)
    if name in _NUMBERS:
        try:
            return float(text)
        except ValueError:
            return text
    return text


async def _start(
    request: Request, service: Service, body: TranscriptionBody, audio: pumice.Audio, translates: bool
) -> tuple[Streams, int]:
    """Start an answer; return its stream, and the tokens of the sound. Raises RequestError."""
    chat = {"messages": [{"role": "user", "content": ""}], "temperature": body.temperature}
    chat |= {"chat_template_kwargs": {"enable_thinking": False}, "max_tokens": body.max_tokens}
    asked = ChatBody.of(chat)
    options = chat_options(asked, service, caching_options(request, asked))
    if not translates and not body.prompt and _has_token(service, _TRANSCRIBE):
        language = f"lang:{body.language}" if body.language else ""
        prompt = MediaPrompt("", ["[INST]", audio, f"[/INST]{language}{_TRANSCRIBE}"])
        kept = {name: value for name, value in options.items() if name not in _CHAT_ONLY}
        started = await service.complete([prompt], 1, kept)
        return started, prompt.n_media
    heard = {"type": "input_audio", "input_audio": audio}
    instruction = _instruction(body, translates)
    messages: list[dict[str, Any]] = [{"role": "user", "content": [heard, {"type": "text", "text": instruction}]}]
    if not translates and _has_token(service, _ASR_TEXT):
        hints = [{"role": "system", "content": _hints(body)}] if _hints(body) else []
        messages = [*hints, {"role": "user", "content": [heard]}]
    streams = await service.chat(messages, 1, options)
    return streams, streams[0].audio_tokens


_CHAT_ONLY = ("template_variables", "reasoning", "reasoning_budget", "parallel_tool_calls", "separate_reasoning")


def _has_token(service: Service, text: str) -> bool:
    """Return True if the vocabulary has a token of its own for a text."""
    return len(service.model.tokenizer.tokenize(text, add_special=False)) == 1


def _instruction(body: TranscriptionBody, translates: bool) -> str:
    """Return the instruction to the model for a sound."""
    task = "Translate the speech to English. Answer with the translation alone."
    task = task if translates else "Transcribe the speech. Answer with the transcript alone."
    return f"{task} {_hints(body)}".strip()


def _hints(body: TranscriptionBody) -> str:
    """Return the request's hints about the speech."""
    language = f"The language spoken is {body.language!r}." if body.language else ""
    return f"{language} {body.prompt or ''}".strip()


def _text(done: Done) -> str:
    text = done.text if isinstance(done, pumice.Completion) else done.message.content
    return _without_language(text)


def _usage(timings: pumice.Timings, n_audio: int) -> TranscriptionUsage:
    return TranscriptionUsage(
        type="tokens",
        input_tokens=timings.prompt_tokens,
        input_token_details=InputDetails(text_tokens=timings.prompt_tokens - n_audio, audio_tokens=n_audio),
        output_tokens=timings.generated_tokens,
        total_tokens=timings.prompt_tokens + timings.generated_tokens,
    )


async def _events(streams: Streams, n_audio: int) -> AsyncIterator[TranscriptionEvent]:
    text = sent = ""
    async for _, items in merge(streams):
        for item in items:
            text += item.content if isinstance(item, pumice.ChatDelta) else item.text
            new = _certain(text)[len(sent) :]
            sent += new
            if new:
                yield TranscriptionEvent(type="transcript.text.delta", delta=new)
    text = _without_language(text)
    if rest := text[len(sent) :]:
        yield TranscriptionEvent(type="transcript.text.delta", delta=rest)
    yield TranscriptionEvent(type="transcript.text.done", text=text, usage=_usage(streams[0].timings, n_audio))


def _certain(text: str) -> str:
    """Return what the transcript begins with: nothing while ``text`` may still be the language of Qwen3-ASR."""
    waits = (
        _ASR_TEXT not in text and len(text) < _MOST_LANGUAGE and _LANGUAGE_IS[: len(text)] == text[: len(_LANGUAGE_IS)]
    )
    return "" if waits else _without_language(text)


def _without_language(text: str) -> str:
    return text.rpartition(_ASR_TEXT)[2].strip()
