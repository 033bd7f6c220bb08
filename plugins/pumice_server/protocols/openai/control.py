"""Endpoint for llama-server's control of answers that are being streamed: end their reasoning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from starlette.requests import Request

import pumice
from pumice_server.protocols.openai.answer_types import Controlled
from pumice_server.protocols.openai.bodies import ControlBody


class RunningAnswer(NamedTuple):
    """An answer that is being streamed: its client, its streams, and whether its reasoning may be ended."""

    client: str
    streams: Sequence[pumice.AsyncChatStream]
    is_controlled: bool


class RunningAnswers:
    """The answers that are being streamed, by id."""

    def __init__(self) -> None:
        self._answers: dict[str, RunningAnswer] = {}

    def add(self, id: str, answer: RunningAnswer) -> None:
        self._answers[id] = answer

    def remove(self, id: str) -> None:
        del self._answers[id]

    def find(self, id: str, client: str) -> RunningAnswer | None:
        """Return an answer of a client."""
        answer = self._answers.get(id)
        return answer if answer and answer.client == client else None


async def control(request: Request, body: ControlBody) -> Controlled:
    """End the reasoning of an answer that the same client streams, with `reasoning_control`."""
    running: RunningAnswers = request.app.state.running
    answer = running.find(body.id, request.state.client)
    if answer is None:
        return Controlled(success=False, message="no active completion for this id")
    if not answer.is_controlled:
        return Controlled(success=False, message="reasoning control not enabled for this completion")
    for stream in answer.streams:
        stream.end_reasoning()
    return Controlled(success=True)
