"""Endpoints for Ollama's chat and generate."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any

from starlette.requests import Request
from starlette.responses import Response

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
    chat_logprob,
    fill_in,
    finish_reason,
    generation_options,
    json_response,
    merge,
    service_of,
    unless_gone,
)
from pumice_server.protocols.ollama.answer_types import OllamaChat, OllamaGeneration
from pumice_server.protocols.ollama.bodies import OllamaChatBody, OllamaGenerateBody, OllamaGenerationBody


def error_body(problem: Problem, request_id: str) -> dict[str, Any]:
    return {"error": problem.message}


_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|s|m|h)")
_DURATIONS = re.compile(rf"-?(?:{_DURATION.pattern}){{1,4}}")


async def chat(request: Request, body: OllamaChatBody) -> Annotated[Response, OllamaChat, OllamaChat]:
    """Answer a chat, in Ollama's form."""
    service = await _loaded(request, body)
    messages = await body.aside(lambda: [read_message(message) for message in body.messages])
    return await _answer(request, service, body, messages, as_chat=True)


async def generate(
    request: Request, body: OllamaGenerateBody
) -> Annotated[Response, OllamaGeneration, OllamaGeneration]:
    """Answer a prompt, in Ollama's form."""
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
    return await _answer(request, service, body, messages, as_chat=False)


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
    """Return a message of Ollama in the form of ``pumice.Model.chat``. Raises HTTPException."""
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
    request: Request, service: Service, body: OllamaGenerationBody, messages: list[Any], as_chat: bool
) -> Response:
    """Answer a chat; without messages the client only wants to load or unload the model."""
    lines = _Lines(service, as_chat)
    if not messages:
        reason = "unload" if _keep_alive(request, body) == 0 else "load"
        return json_response(lines.part({}) | {"done": True, "done_reason": reason})
    options = {**await body.aside(_chat_options, body, service), **caching_options(request, body, body.options)}
    streams = await unless_gone(request, service.chat(messages, 1, options))
    if body.stream:
        return Streaming(_lines(lines, streams[0]), partial(service.end, streams), NDJSON)
    done = (await unless_gone(request, service.gather(streams)))[0]
    delta = pumice.ChatDelta(
        done.message.content, done.message.reasoning, done.message.tool_calls, logprobs=done.logprobs or ()
    )
    return json_response(lines.delta(delta) | lines.end(done.finish_reason, streams[0].timings))


async def _raw(request: Request, service: Service, body: OllamaGenerateBody, prompt: TextOrTokens) -> Response:
    """Complete a prompt without a chat template."""
    shape = _Lines(service, as_chat=False)
    options = {**await body.aside(_options, body, service), **caching_options(request, body, body.options)}
    streams = await service.complete([prompt], 1, options)

    async def lines() -> AsyncIterator[dict[str, Any]]:
        async for _, pieces in merge(streams):
            ended = pieces[-1].finish_reason
            end = shape.end(ended, streams[0].timings) if ended else {}
            yield shape.part({"response": "".join(piece.text for piece in pieces)}) | end

    if body.stream:
        return Streaming(lines(), partial(service.end, streams), NDJSON)
    done = (await unless_gone(request, service.gather(streams)))[0]
    return json_response(shape.part({"response": done.text}) | shape.end(done.finish_reason, done.timings))


async def _lines(lines: _Lines, stream: pumice.AsyncChatStream) -> AsyncIterator[dict[str, Any]]:
    async for _, deltas in merge([stream]):
        for delta in deltas:
            end = lines.end(delta.finish_reason, stream.timings) if delta.finish_reason else {}
            yield lines.delta(delta) | end


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


class _Lines:
    """Builds the lines of an answer: with a message for a chat, with a response for generate."""

    def __init__(self, service: Service, as_chat: bool) -> None:
        self._service = service
        self._as_chat = as_chat

    def part(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        made = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        empty: dict[str, Any] = {"message": {"role": "assistant", "content": ""}} if self._as_chat else {"response": ""}
        return {"model": self._service.name, "created_at": made, **empty, **fields, "done": False}

    def delta(self, delta: pumice.ChatDelta) -> dict[str, Any]:
        logprobs = [chat_logprob(token.token, token, self._service.token_bytes) for token in delta.logprobs]
        fields: dict[str, Any] = {"logprobs": logprobs} if logprobs else {}
        thinking = {"thinking": delta.reasoning} if delta.reasoning else {}
        if not self._as_chat:
            return self.part({"response": delta.content, **thinking, **fields})
        message: dict[str, Any] = {"role": "assistant", "content": delta.content, **thinking}
        whole = [call for call in delta.tool_calls if not call.partial]  # clients run calls whatever done_reason says
        if whole:
            calls = [{"name": call.name, "arguments": call.arguments} for call in whole]
            message["tool_calls"] = [{"function": call} for call in calls]
        return self.part({"message": message, **fields})

    def end(self, reason: str, times: pumice.Timings) -> dict[str, Any]:
        """Return token counts, and durations in nanoseconds."""
        total = times.queue_seconds + times.prompt_seconds + times.generation_seconds
        ended = finish_reason(reason)
        return {
            "done": True,
            "done_reason": "stop" if ended == "tool_calls" else ended,
            "total_duration": int(total * 1e9),
            "load_duration": 0,
            "prompt_eval_count": times.prompt_tokens,
            "prompt_eval_duration": int(times.prompt_seconds * 1e9),
            "eval_count": times.generated_tokens,
            "eval_duration": int(times.generation_seconds * 1e9),
        }
