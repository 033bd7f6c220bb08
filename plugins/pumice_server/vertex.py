"""Endpoint of Vertex AI's containers: several chats in one request, at the path of ``AIP_PREDICT_ROUTE``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from pumice_server.answers import make_answer, unless_gone
from pumice_server.bodies import PredictionsBody
from pumice_server.body import set_size
from pumice_server.errors import bad_request
from pumice_server.models import service_of
from pumice_server.openai_chat import answer_chat


async def predict(request: Request, body: PredictionsBody) -> Response:
    """Answer ``{"instances": [{"@requestFormat": "chatCompletions", "messages": [...]}]}`` with ``predictions``."""
    chats, name = body.instances, body.instances[0].model
    for i, chat in enumerate(chats):
        set_size(chat, body.size)
        if chat.model not in (None, name):
            raise bad_request(f"instances[{i}].model: all instances of a request must name the model of instances[0]")
    service = await service_of(request, name)
    service.check_count(sum(chat.n for chat in chats))

    async def answered() -> Sequence[tuple[Callable[[], Mapping[str, Any]], int]]:
        async with asyncio.TaskGroup() as group:  # an error ends the others
            tasks = [group.create_task(answer_chat(request, service, chat)) for chat in chats]
        return [task.result() for task in tasks]

    try:
        predictions = await unless_gone(request, answered())
    except* Exception as errors:
        raise errors.exceptions[0] from None
    size = sum(size for _, size in predictions)
    return await make_answer(lambda: {"predictions": [make() for make, _ in predictions]}, size)
