"""The stream of a replica's messages for all requests, which ends when there are none for a while."""

import asyncio
import time

import pytest

from pumice.engine.messages import Event, Failed, Finished, Output, Timings
from pumice_ray import outbox
from pumice_ray.outbox import Outbox
from waiting import PATIENCE


def token(id: int) -> Output:
    return Output(id, [1], ["a"])


def finished(id: int) -> Finished:
    return Finished(id, "", "stop", Timings())


def test_the_first_token_of_each_completion_leaves_at_once(monkeypatch):
    monkeypatch.setattr(outbox, "STREAM_SECONDS", 3600.0)

    async def run() -> list[list[Event]]:
        box = Outbox()
        box.expect([1, 2])
        messages = box.messages()
        found = []
        for events in ([token(1)], [token(2), token(1)]):
            box.put(events)
            found.append(await asyncio.wait_for(anext(messages), PATIENCE))
        box.put([token(1), token(2)])
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(messages), 0.1)
        return found

    assert asyncio.run(run()) == [[token(1)], [token(2), token(1)]]


@pytest.mark.parametrize("last", [finished(1), Failed(1, RuntimeError("a"))])
def test_a_request_lasts_until_its_end_was_sent(last):
    async def run() -> None:
        box = Outbox()
        box.expect([1])
        waiting = asyncio.create_task(box.sent([1]))
        messages = box.messages()
        box.put([token(1)])
        assert await anext(messages) == [token(1)]
        box.put([last])
        assert await anext(messages) == [last]
        assert not waiting.done()
        with pytest.raises(StopAsyncIteration):
            await anext(messages)
        assert waiting.done()
        assert box.forget([1]) == []

    asyncio.run(run())


def test_the_stream_goes_on_as_long_as_a_request_does(monkeypatch):
    monkeypatch.setattr(outbox, "IDLE_SECONDS", 0.05)

    async def run() -> None:
        box = Outbox()
        box.expect([1, 2])
        asyncio.get_running_loop().call_later(0.3, box.forget, [1, 2])
        began = time.monotonic()
        with pytest.raises(StopAsyncIteration):
            await anext(box.messages())
        assert time.monotonic() - began > 0.25

    asyncio.run(run())


def test_messages_without_a_receiver_are_forgotten():
    async def run() -> None:
        box = Outbox()
        box.expect([1, 2, 3])
        messages = box.messages()
        for event in (finished(2), token(1)):
            box.put([event])
            await anext(messages)
        assert box.forget([1, 2, 3]) == [1, 3]

    asyncio.run(run())
