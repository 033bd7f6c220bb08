"""Clocks that jump: a wall clock that is set, and a machine that slept. No request and no engine ends by that."""

import asyncio
import itertools
import time
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

from pumice_server.models import model_service
from pumice_server.models.model_service import ModelService
from server_thread import running

DAY = 86400.0


def test_requests_while_the_wall_clock_is_set(model, monkeypatch):
    wall, steps = time.time, itertools.cycle([0.0, DAY, -DAY, 400 * DAY])
    monkeypatch.setattr(time, "time", lambda: wall() + next(steps))
    with running(model, timeout=60.0) as server:
        for stream in (False, True) * 3:
            body = {"prompt": "a", "max_tokens": 3, "stream": stream}
            assert server.client.post("/v1/completions", json=body).status_code == 200
        chat = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 3, "stream": True}
        streams = {}  # which can be read again
        for name in "abcd":
            named = {"X-Conversation-Id": name}
            streams[name] = server.client.post("/v1/chat/completions", json=chat, headers=named).content
        assert streams == {name: server.client.get(f"/v1/stream/{name}?from=0").content for name in streams}
        assert server.client.get("/v1/models").status_code == 200
        assert server.client.get("/api/ps").status_code == 200


class Sleeper:
    """A model whose engine answers when it is told to."""

    def __init__(self) -> None:
        self.answer: Future[Any] = Future()
        self.engine = SimpleNamespace(client=SimpleNamespace(inspect=lambda: self.answer), kill=lambda: None)


def ask(monkeypatch, answers: bool) -> list[str]:
    """Return the log if the clock jumps by a day while an engine is asked for a sign of life."""
    logged: list[str] = []
    monkeypatch.setattr(model_service.logger, "error", lambda *line: logged.append(line[0] % line[1:]))

    async def run() -> None:
        asked = ModelService.__new__(ModelService)
        asked.model, asked.names = Sleeper(), ["name"]  # type: ignore[assignment]
        loop = asyncio.get_running_loop()
        clock, jump = loop.time, [0.0]
        loop.time = lambda: clock() + jump[0]  # type: ignore[method-assign]
        expecting = asyncio.create_task(asked._expect(8.0 if answers else 0.8))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        jump[0] = DAY
        await asyncio.sleep(0.05)
        if answers:
            asked.model.answer.set_result("here")
        await expecting

    asyncio.run(run())
    return logged


def test_an_engine_that_slept_with_its_machine_may_answer_and_one_that_hangs_is_noticed(monkeypatch):
    assert ask(monkeypatch, answers=True) == []
    assert ask(monkeypatch, answers=False) == ["name: its engine has not finished a batch for 1 seconds"]
