"""Vertex AI's containers: several chats in one request, at the route that ``AIP_PREDICT_ROUTE`` names."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from pumice_server.answers import make_answer, unless_gone
from pumice_server.body import Body
from pumice_server.errors import bad_request
from pumice_server.models import service_of
from pumice_server.openai_chat import answer_chat

_FORMAT = "@requestFormat"
_CHATS = "chatCompletions"


async def predict(request: Request) -> Response:
    """Answer ``{"instances": [{"@requestFormat": "chatCompletions", "messages": [...]}]}`` with ``predictions``."""
    body = await Body.read(request)
    chats = await body.aside(_chats, body)
    name = chats[0].first("model")
    for i, chat in enumerate(chats):
        if chat.first("model") not in (None, name):
            raise bad_request(f"instances[{i}].model: all instances of a request need one model, that of instances[0]")
    service = await service_of(request, name)
    service.check_count(sum(chat.integer("n", 1) for chat in chats))

    async def answered() -> Sequence[tuple[Callable[[], Mapping[str, Any]], int]]:
        async with asyncio.TaskGroup() as group:  # one that fails ends the others
            tasks = [group.create_task(answer_chat(request, service, chat)) for chat in chats]
        return [task.result() for task in tasks]

    try:
        predictions = await unless_gone(request, answered())
    except* Exception as errors:
        raise errors.exceptions[0] from None
    size = sum(size for _, size in predictions)
    return await make_answer(lambda: {"predictions": [make() for make, _ in predictions]}, size)


def _chats(body: Body) -> list[Body]:
    instances = body.get("instances", list, [])
    if not instances:
        raise bad_request("instances must be a list of one chat or more")
    return [_chat(i, instance, body.size) for i, instance in enumerate(instances)]


def _chat(number: int, instance: Any, size: int) -> Body:
    """``size``: of the whole body, since that of a part is not known."""
    if not isinstance(instance, dict) or instance.get(_FORMAT) != _CHATS:
        raise bad_request(f'instances[{number}]: expected an object whose {_FORMAT} is "{_CHATS}"')
    chat = Body(instance, size)
    if chat.get("stream", bool, False):
        raise bad_request(f"instances[{number}].stream: predictions are not streamed")
    return chat
