"""Ollama's chat and generate."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

import pumice
from pumice_server.answers import Streaming, Wire, json_response, to_json, unless_gone
from pumice_server.body import Body
from pumice_server.entry import FOREVER
from pumice_server.errors import bad_request
from pumice_server.figures import chat_logprob, finish_reason
from pumice_server.models import Models, service_of
from pumice_server.options import generation_options
from pumice_server.prompts import fill_in
from pumice_server.service import Prompt, Service
from pumice_server.streams import merge

NDJSON = Wire("application/x-ndjson", lambda problem: to_json(problem.ollama_body()) + b"\n", None)

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|s|m|h)")
_DURATIONS = re.compile(rf"-?(?:{_DURATION.pattern}){{1,4}}")
_REFUSED = ("template", "images", "context")


async def chat(request: Request) -> Response:
    body = await Body.read(request)
    service = await _loaded(request, body)
    messages = await body.aside(lambda: [_message(each) for each in body.get("messages", list, [])])
    return await _answer(request, service, body, messages, as_chat=True)


async def generate(request: Request) -> Response:
    body = await Body.read(request)
    service = await _loaded(request, body)
    for name in _REFUSED:
        if body.fields.get(name):
            raise bad_request(f"{name} is not supported")
    prompt, system = body.get("prompt", str, ""), body.get("system", str, "")
    if body.get("suffix", str, ""):
        return await _raw(request, service, body, await body.aside(fill_in, service, prompt, body.fields["suffix"]))
    if body.get("raw", bool, False) and prompt:
        return await _raw(request, service, body, prompt)
    messages = [{"role": "system", "content": system}] if system else []
    return await _answer(
        request, service, body, [*messages, {"role": "user", "content": prompt}] if prompt else [], as_chat=False
    )


async def _loaded(request: Request, body: Body) -> Service:
    """The model, which stays loaded for as long as the request says."""
    models: Models = request.app.state.models
    name = body.first("model")
    entry = models.find(name if isinstance(name, str) else None)
    seconds = _keep_alive(request, body)
    service = await service_of(request, name)
    if seconds is not None:
        entry.keep_alive = seconds
    return service


def _keep_alive(request: Request, body: Body) -> float | None:
    """Of who may load and unload models; what others say is not looked at."""
    seconds = keep_alive(body.first("keep_alive"))
    return seconds if "admin" in request.state.scopes else None


def keep_alive(given: Any) -> float | None:
    """Seconds; given as a number, or as in ``5m``, ``1h30m``. Less than 0: forever; None: not given."""
    if given is None:
        return None
    parts = _DURATION.findall(given) if isinstance(given, str) and _DURATIONS.fullmatch(given) else None
    number = given if isinstance(given, (int, float)) and not isinstance(given, bool) else None
    if parts:
        number = sum(float(value) * _UNITS[unit] for value, unit in parts) * (-1 if given.startswith("-") else 1)
    if number is None:
        raise bad_request('keep_alive must be a number of seconds, or a duration such as "5m"')
    return FOREVER if number < 0 else float(number)


def _message(given: Any) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise bad_request("messages: expected a list of objects")
    if given.get("images"):
        raise bad_request("images: this model sees none")
    message = {name: value for name, value in given.items() if name not in ("images", "tool_name")}
    return {**message, "name": given["tool_name"]} if given.get("tool_name") else message


async def _answer(request: Request, service: Service, body: Body, messages: list[Any], as_chat: bool) -> Response:
    """``messages`` empty: the client only wants the model to be loaded, which it is."""
    told = _Told(service, as_chat)
    if not messages:
        reason = "unload" if _keep_alive(request, body) == 0 else "load"
        return json_response(told.part({}) | {"done": True, "done_reason": reason})
    stream = body.get("stream", bool, True)
    options = {**await body.aside(_chat_options, body, service), "cache_salt": request.state.cache_salt}
    streams = await service.chat(messages, 1, options)
    if stream:
        return Streaming(_lines(told, streams[0]), partial(service.end, streams), NDJSON)
    done = (await unless_gone(request, service.gather(streams)))[0]
    delta = pumice.ChatDelta(
        done.message.content, done.message.reasoning, done.message.tool_calls, logprobs=done.logprobs or ()
    )
    return json_response(told.delta(delta) | told.end(done.finish_reason, streams[0].timings))


async def _raw(request: Request, service: Service, body: Body, prompt: Prompt) -> Response:
    """The prompt as it is, without a template."""
    told = _Told(service, as_chat=False)
    stream = body.get("stream", bool, True)
    streams = await service.complete(
        [prompt], 1, {**await body.aside(_options, body, service), "cache_salt": request.state.cache_salt}
    )

    async def lines() -> AsyncIterator[bytes]:
        async for _, pieces in merge(streams):
            ended = pieces[-1].finish_reason
            end = told.end(ended, streams[0].timings) if ended else {}
            yield to_json(told.part({"response": "".join(piece.text for piece in pieces)}) | end) + b"\n"

    if stream:
        return Streaming(lines(), partial(service.end, streams), NDJSON)
    done = (await unless_gone(request, service.gather(streams)))[0]
    return json_response(told.part({"response": done.text}) | told.end(done.finish_reason, done.timings))


async def _lines(told: _Told, stream: pumice.AsyncChatStream) -> AsyncIterator[bytes]:
    async for _, deltas in merge([stream]):
        for delta in deltas:
            end = told.end(delta.finish_reason, stream.timings) if delta.finish_reason else {}
            yield to_json(told.delta(delta) | end) + b"\n"


def _options(body: Body, service: Service) -> dict[str, Any]:
    """The object ``options``; its names are llama-server's, but for ``num_predict``. Others are not looked at."""
    given = dict(body.get("options", dict, {}))
    limit = given.pop("num_predict", None)
    fields = Body({**given, "max_tokens": -1 if limit in (None, -2) else limit})  # -2: until the context is full
    options = generation_options(fields, service)
    form = body.first("format")
    if form == "json":
        options["response_format"] = {"type": "json_object"}
    elif isinstance(form, dict):
        options["json_schema"] = form
    elif form not in (None, ""):
        raise bad_request('format must be "json" or a JSON schema')
    return options


def _chat_options(body: Body, service: Service) -> dict[str, Any]:
    options = _options(body, service)
    think = body.first("think")
    if isinstance(think, bool) or think is None:
        options["reasoning"] = think
    else:
        options |= {"reasoning": True, "reasoning_effort": think}
    n_top = body.integer("top_logprobs", 0)
    if body.get("logprobs", bool, False):
        options["logprobs"] = n_top
    return {**options, "tools": body.get("tools", list, [])}


class _Told:
    """Lines of one answer: those of a chat have a message, those of generate a response."""

    def __init__(self, service: Service, as_chat: bool) -> None:
        self._service = service
        self._as_chat = as_chat

    def part(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        made = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        empty: dict[str, Any] = {"message": {"role": "assistant", "content": ""}} if self._as_chat else {"response": ""}
        return {"model": self._service.name, "created_at": made, **empty, **fields, "done": False}

    def delta(self, delta: pumice.ChatDelta) -> dict[str, Any]:
        found = [chat_logprob(each.token, each, self._service.token_bytes) for each in delta.logprobs]
        fields: dict[str, Any] = {"logprobs": found} if found else {}
        thinking = {"thinking": delta.reasoning} if delta.reasoning else {}
        if not self._as_chat:
            return self.part({"response": delta.content, **thinking, **fields})
        message: dict[str, Any] = {"role": "assistant", "content": delta.content, **thinking}
        whole = [call for call in delta.tool_calls if not call.partial]  # clients run them whatever done_reason says
        if whole:
            calls = [{"name": call.name, "arguments": call.arguments} for call in whole]
            message["tool_calls"] = [{"function": call} for call in calls]
        return self.part({"message": message, **fields})

    def end(self, reason: str, times: Any) -> dict[str, Any]:
        """Tokens, and durations in nanoseconds."""
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
