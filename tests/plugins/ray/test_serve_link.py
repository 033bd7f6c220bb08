"""Requests as calls to replicas: tried again where nothing was sent, else failed; cancelled one by one."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

import pumice
from pumice.engine.client import EngineClient
from pumice.engine.messages import Accepted, Facts, Finished, Output, Request, Timings

pytest.importorskip("ray", reason="Ray is not installed: pip install 'pumice[ray]'")

from pumice_ray.serve_link import ServeLink

FACTS = Facts(512, 512, 100, ["cpu"], {})


class Stream:
    def __init__(self, events: AsyncIterator[Any]) -> None:
        self._events = events
        self.cancelled = False

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._events

    def cancel(self) -> None:
        self.cancelled = True


class Handle:
    """Serve's handle, whose replicas do what ``generate`` says for the number of the call."""

    def __init__(self, generate: Callable[[int], AsyncIterator[Any]]) -> None:
        self._generate = generate
        self.streams: list[Stream] = []
        self.facts = self.generate = self

    def options(self, **_: Any) -> "Handle":
        return self

    def remote(self, *arguments: Any) -> Any:
        if not arguments:
            return asyncio.sleep(0, FACTS)
        self.streams.append(Stream(self._generate(len(self.streams))))
        return self.streams[-1]


def ask(handle: Handle, n: int = 1) -> tuple[list[list[Any]], ServeLink, EngineClient, list[int]]:
    heard: list[list[Any]] = [[] for _ in range(n)]
    client = EngineClient(lambda command: link.send(command), confirms=True)
    link = ServeLink(handle, client.receive, lambda: None)
    assert link.loaded.result(10) == FACTS
    ids = client.add(Request([1, 2], n=n), *(each.append for each in heard))
    return heard, link, client, ids


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def ended(heard: list[Any]) -> bool:
    return any(type(event).__name__ in ("Finished", "Failed") for event in heard)


def test_a_replica_that_dies_before_it_answers_is_no_loss():
    async def generate(call: int) -> AsyncIterator[Any]:
        yield [Accepted(0)]
        if call < 2:
            raise RuntimeError("the actor died")
        yield [Output(0, [5], ["a"]), Finished(0, "", "stop", Timings())]

    handle = Handle(generate)
    (heard,), link, _, (id,) = ask(handle)
    wait_until(lambda: ended(heard))
    assert len(handle.streams) == 3
    assert heard[-2:] == [Output(id, [5], ["a"]), Finished(id, "", "stop", Timings())]
    link.close()


@pytest.mark.parametrize("said", [True, False])
def test_a_replica_that_dies_later_or_always_is_an_error(said):
    async def generate(call: int) -> AsyncIterator[Any]:
        yield [Output(0, [5], ["a"])] if said else [Accepted(0)]
        raise RuntimeError("the actor died")

    handle = Handle(generate)
    (heard,), link, _, _ = ask(handle)
    wait_until(lambda: ended(heard))
    assert len(handle.streams) == (1 if said else 3)
    assert isinstance(heard[-1].error, pumice.EngineDiedError)
    link.close()


def test_what_a_replica_refuses_is_not_asked_again():
    async def generate(call: int) -> AsyncIterator[Any]:
        raise pumice.RequestError("too long")
        yield

    handle = Handle(generate)
    (heard,), link, _, _ = ask(handle)
    wait_until(lambda: ended(heard))
    assert len(handle.streams) == 1
    assert str(heard[0].error) == "too long"
    link.close()


def test_a_call_ends_with_the_last_completion_that_is_cancelled():
    go = threading.Event()

    async def generate(call: int) -> AsyncIterator[Any]:
        yield [Output(0, [1], ["a"]), Output(1, [2], ["b"])]
        while not go.is_set():
            await asyncio.sleep(0.005)
        yield [Output(0, [3], ["c"]), Output(1, [4], ["d"])]
        await asyncio.sleep(60)

    handle = Handle(generate)
    heard, link, client, ids = ask(handle, n=2)
    wait_until(lambda: all(heard))
    client.cancel(ids[0])
    wait_until(lambda: ended(heard[0]))
    go.set()
    wait_until(lambda: len(heard[1]) == 2)
    assert heard[0][1:] == [Finished(ids[0], "", "cancelled", Timings())]
    assert not handle.streams[0].cancelled
    link.close()
    wait_until(lambda: handle.streams[0].cancelled)
    assert heard[1][-1].reason == "cancelled"
    with pytest.raises(pumice.ModelClosedError):
        client.add(Request([1]), heard[0].append)
