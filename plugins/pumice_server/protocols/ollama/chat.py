"""Endpoints for Ollama's chat and generate."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Generic, TypeVar

from starlette.requests import Request

import pumice
from pumice.plugin.unstable import Problem, kind_of_base64, show_value
from pumice_server.catalogue import FOREVER
from pumice_server.interface import (
    NDJSON,
    Models,
    Service,
    Streaming,
    TextOrTokens,
    bad_request,
    caching_options,
    fill_in,
    finish_reason,
    generation_options,
    merge,
    service_of,
    token_logprob,
    unless_gone,
)
from pumice_server.protocols.ollama.answer_types import (
    OllamaAnswerMessage,
    OllamaChat,
    OllamaFunctionCall,
    OllamaGeneration,
    OllamaToolCall,
)
from pumice_server.protocols.ollama.bodies import OllamaChatBody, OllamaGenerateBody, OllamaGenerationBody


def error_body(problem: Problem, request_id: str) -> dict[str, Any]:
    return {"error": problem.message}


_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|s|m|h)")
_DURATIONS = re.compile(rf"-?(?:{_DURATION.pattern}){{1,4}}")


async def chat(request: Request, body: OllamaChatBody) -> OllamaChat | Streaming[OllamaChat]:
    """Answer a chat, in Ollama's format."""
    service = await _loaded(request, body)
    messages = await body.aside(lambda: [read_message(message) for message in body.messages])
    return await _answer(request, service, body, messages, _Lines(service, _chat))


async def generate(request: Request, body: OllamaGenerateBody) -> OllamaGeneration | Streaming[OllamaGeneration]:
    """Answer a prompt, in Ollama's format."""
    service = await _loaded(request, body)
    prompt = body.prompt
    if body.images and (body.suffix or body.raw):
        raise bad_request("images: they need the chat template; leave out raw and suffix")
    if body.suffix:
        return await _raw(request, service, body, await body.aside(fill_in, service, prompt, body.suffix))
    if body.raw and prompt:
        return await _raw(request, service, body, prompt)
    system = [{"role": "system", "content": body.system}] if body.system else []
    content = _with_images(body.images, prompt) if body.images else prompt
    messages = [*system, {"role": "user", "content": content}] if content else []
    return await _answer(request, service, body, messages, _Lines(service, _generation))


async def _loaded(request: Request, body: OllamaGenerationBody) -> Service:
    """Return the service of the model, and keep it loaded for as long as the request says."""
    models: Models = request.app.state.models
    served_model = models.find(body.model)
    seconds = _keep_alive(request, body)
    service = await service_of(request, body.model)
    if seconds is not None:
        served_model.keep_alive = seconds
    return service


def _keep_alive(request: Request, body: OllamaGenerationBody) -> float | None:
    """Return the request's ``keep_alive`` if its key has the scope admin, else None."""
    seconds = keep_alive(body.keep_alive)
    return seconds if "admin" in request.state.scopes else None


def keep_alive(value: float | str | None) -> float | None:
    """Return the seconds of a number, or of a duration such as ``5m`` or ``1h30m``. Negative values mean forever."""
    if isinstance(value, str):
        if not _DURATIONS.fullmatch(value):
            raise bad_request('keep_alive must be a number of seconds, or a duration such as "5m"')
        seconds = sum(float(number) * _UNITS[unit] for number, unit in _DURATION.findall(value))
        return FOREVER if value.startswith("-") and seconds else seconds
    return FOREVER if value is not None and value < 0 else value


def read_message(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message of Ollama in the format of ``pumice.Model.chat``. Raises HTTPException."""
    message = {name: value for name, value in given.items() if name not in ("images", "tool_name")}
    if given.get("images"):
        message["content"] = _with_images(given["images"], message.get("content") or "")
    return {**message, "name": given["tool_name"]} if given.get("tool_name") else message


def _with_images(images: object, content: object) -> list[Any]:
    """Return content after its images and sounds, which are base64. Raises HTTPException."""
    if not isinstance(images, list) or not all(isinstance(image, str) for image in images):
        raise bad_request("images: expected a list of images and sounds in base64")
    if not isinstance(content, str | list):
        raise bad_request(f"content: expected text or a list of parts, not {show_value(content)}")
    texts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [*({"type": kind_of_base64(image), "base64": image} for image in images), *texts]


async def _answer(
    request: Request, service: Service, body: OllamaGenerationBody, messages: list[Any], lines: _Lines[L]
) -> L | Streaming[L]:
    """Answer a chat; without messages the client only wants to load or unload the model."""
    if not messages:
        line = lines.of(pumice.ChatDelta())
        line.done, line.done_reason = True, "unload" if _keep_alive(request, body) == 0 else "load"
        return line
    options = {**await body.aside(_chat_options, body, service), **caching_options(request, body, body.options)}
    streams = await unless_gone(request, service.chat(messages, 1, options))
    if body.stream:
        return Streaming(_chat_lines(lines, streams[0]), partial(service.end, streams), NDJSON)
    done = (await unless_gone(request, service.gather(streams)))[0]
    said = done.message
    delta = pumice.ChatDelta(said.content, said.reasoning, said.tool_calls, logprobs=done.logprobs or ())
    return lines.end(lines.of(delta), done.finish_reason, streams[0].timings)


async def _raw(
    request: Request, service: Service, body: OllamaGenerateBody, prompt: TextOrTokens
) -> OllamaGeneration | Streaming[OllamaGeneration]:
    """Complete a prompt without a chat template."""
    lines = _Lines(service, _generation)
    options = {**await body.aside(_options, body, service), **caching_options(request, body, body.options)}
    streams = await service.complete([prompt], 1, options)
    if body.stream:
        return Streaming(_text_lines(lines, streams), partial(service.end, streams), NDJSON)
    done = (await unless_gone(request, service.gather(streams)))[0]
    return lines.end(lines.of(pumice.ChatDelta(done.text)), done.finish_reason, done.timings)


async def _chat_lines(lines: _Lines[L], stream: pumice.AsyncChatStream) -> AsyncIterator[L]:
    async for _, deltas in merge([stream]):
        for delta in deltas:
            line = lines.of(delta)
            yield lines.end(line, delta.finish_reason, stream.timings) if delta.finish_reason else line


async def _text_lines(lines: _Lines[L], streams: Sequence[pumice.AsyncStream]) -> AsyncIterator[L]:
    async for _, pieces in merge(streams):
        line, ended = lines.of(pumice.ChatDelta("".join(piece.text for piece in pieces))), pieces[-1].finish_reason
        yield lines.end(line, ended, streams[0].timings) if ended else line


def _options(body: OllamaGenerationBody, service: Service) -> dict[str, Any]:
    """Return the options of generation."""
    options = generation_options(body.options, service)
    form = body.format
    if form == "json":
        options["response_format"] = {"type": "json_object"}
    elif isinstance(form, dict):
        options["json_schema"] = form
    elif form not in (None, ""):
        raise bad_request('format must be "json" or a JSON schema')
    return options


def _chat_options(body: OllamaGenerationBody, service: Service) -> dict[str, Any]:
    options = _options(body, service)
    think = body.think
    if isinstance(think, bool) or think is None:
        options["reasoning"] = think
    else:
        options |= {"reasoning": True, "reasoning_effort": think}
    if body.logprobs:
        options["logprobs"] = body.top_logprobs
    return {**options, "tools": body.tools if isinstance(body, OllamaChatBody) and body.tools else []}


L = TypeVar("L", OllamaChat, OllamaGeneration)


class _Lines(Generic[L]):
    """Builds the lines of an answer by ``make``: with a message for a chat, with a response for generate."""

    def __init__(self, service: Service, make: Callable[[pumice.ChatDelta, dict[str, Any]], L]) -> None:
        self._service = service
        self._make: Callable[[pumice.ChatDelta, dict[str, Any]], L] = make

    def of(self, delta: pumice.ChatDelta) -> L:
        logprobs = [token_logprob(token.token, token, self._service.token_bytes) for token in delta.logprobs]
        made = datetime.now(UTC).isoformat().replace("+00:00", "Z")  # noqa: TID251 (shown)
        head = {"model": self._service.name, "created_at": made, "done": False, "logprobs": logprobs or None}
        return self._make(delta, head)

    def end(self, line: L, reason: str, times: pumice.Timings) -> L:
        """Return a line as the last one: with token counts, and durations in nanoseconds."""
        total = times.queue_seconds + times.prompt_seconds + times.generation_seconds
        ended = finish_reason(reason)
        line.done, line.done_reason = True, "stop" if ended == "tool_calls" else ended
        line.total_duration, line.load_duration = int(total * 1e9), 0
        line.prompt_eval_count, line.prompt_eval_duration = times.prompt_tokens, int(times.prompt_seconds * 1e9)
        line.eval_count, line.eval_duration = times.generated_tokens, int(times.generation_seconds * 1e9)
        return line


def _chat(delta: pumice.ChatDelta, head: dict[str, Any]) -> OllamaChat:
    calls = [
        OllamaToolCall(function=OllamaFunctionCall(name=call.name, arguments=call.arguments))
        for call in delta.tool_calls
        if not call.partial  # clients run calls whatever done_reason says
    ]
    message = OllamaAnswerMessage(
        role="assistant", content=delta.content, thinking=delta.reasoning or None, tool_calls=calls or None
    )
    return OllamaChat(message=message, **head)


def _generation(delta: pumice.ChatDelta, head: dict[str, Any]) -> OllamaGeneration:
    return OllamaGeneration(response=delta.content, thinking=delta.reasoning or None, **head)
