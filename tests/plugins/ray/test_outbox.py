"""The stream of a replica's messages for all requests, which ends when there are none for a while."""

import asyncio
import time

import pytest

from pumice.engine.messages import Failed, Finished, Output, Timings
from pumice_ray import outbox
from pumice_ray.outbox import Outbox


def token(id: int) -> Output:
    return Output(id, [1], ["a"])


def finished(id: int) -> Finished:
    return Finished(id, "", "stop", Timings())


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
