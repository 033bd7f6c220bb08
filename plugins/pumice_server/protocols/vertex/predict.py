"""Endpoint of Vertex AI's containers: several chats in one request, at the path of ``AIP_PREDICT_ROUTE``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field
from starlette.requests import Request

from pumice_server.field_types import refused
from pumice_server.interface import Body, Whole, bad_request, make_answer, service_of, set_size, unless_gone
from pumice_server.limits import MAX_PROMPTS
from pumice_server.protocols.openai.answer_types import ChatCompletion
from pumice_server.protocols.openai.bodies import ChatBody
from pumice_server.protocols.openai.chat import answer_chat


class PredictedChat(ChatBody, kw_only=True):
    """One chat of several."""

    format: Literal["chatCompletions"] = field(name="@requestFormat")
    """Format of the instance."""
    stream: Annotated[Any, refused("predictions are not streamed")] = False


class PredictionsBody(Body, kw_only=True):
    """Several chats in one request, for one model."""

    instances: Annotated[list[PredictedChat], Meta(min_length=1, max_length=MAX_PROMPTS)]
    """Chats."""


class Predictions(Struct):
    """Answers to several chats."""

    predictions: list[ChatCompletion]
    """An answer to each."""


async def predict(request: Request, body: PredictionsBody) -> Whole[Predictions]:
    """Answer ``{"instances": [{"@requestFormat": "chatCompletions", "messages": [...]}]}`` with ``predictions``."""
    chats, name = body.instances, body.instances[0].model
    for i, chat in enumerate(chats):
        set_size(chat, body.size)
        if chat.model not in (None, name):
            raise bad_request(f"instances[{i}].model: all instances of a request must name the model of instances[0]")
    service = await service_of(request, name)
    service.check_count(sum(chat.n for chat in chats))

    async def answered() -> Sequence[tuple[Callable[[], ChatCompletion], int]]:
        async with asyncio.TaskGroup() as group:  # an error ends the others
            tasks = [group.create_task(answer_chat(request, service, chat)) for chat in chats]
        return [task.result() for task in tasks]

    try:
        predictions = await unless_gone(request, answered())
    except* Exception as errors:
        raise errors.exceptions[0] from None
    size = sum(size for _, size in predictions)
    return await make_answer(lambda: Predictions(predictions=[make() for make, _ in predictions]), size)
