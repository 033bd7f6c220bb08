"""Requests as calls to replicas: tried again where nothing was sent, else failed; all are heard in one stream."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import numpy as np
import pytest

import pumice
from pumice.cache_tiers import Tally
from pumice.engine import messages
from pumice.engine.client import EngineClient
from pumice.process.codec import COMMANDS, REPORTS, Loaded, encode_events
from pumice.speech.stream import SpeechStream
from pumice.speech_model import SpokenText

pytest.importorskip("ray", reason="Ray is not installed: pip install 'pumice[ray]'")


from pumice_ray.mailbox import numbered
from pumice_ray.serve_link import ServeLink, added
from waiting import PATIENCE, wait_until

FACTS = messages.Facts(512, 512, 100, ["cpu"], {})


class Stream:
    def __init__(self, items: AsyncIterator[Any]) -> None:
        self._items = items
        self.cancelled = False

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._items

    def cancel(self) -> None:
        self.cancelled = True


class Handle:
    """Serve's handle; ``answer`` is what its replicas do for the number of a call: messages to who listens, in turn.

    The name of the replica is the number of the call, or ``name``, and a message is a list of events whose ids are the
    numbers of completions. None ends the call, and an exception that is raised is the replica's death.
    """

    def __init__(self, answer: Callable[[int], AsyncIterator[Any]], name: str = "") -> None:
        self._answer = answer
        self._name = name
        self._boxes: dict[str, asyncio.Queue[Any]] = {}
        self.calls: list[Stream] = []
        self.listened: list[Stream] = []
        self.facts = self.generate = self.listen = self

    def options(self, **_: Any) -> "Handle":
        return self

    def remote(self, *arguments: Any) -> Any:
        if not arguments:
            return asyncio.sleep(0, REPORTS.encode(Loaded(FACTS)))
        if isinstance(arguments[0], str):
            self.listened.append(Stream(self._messages(arguments[0])))
            return self.listened[-1]
        command = COMMANDS.decode(arguments[0])
        ids = [command.id] if isinstance(command, messages.Speak) else command.ids
        self.calls.append(Stream(self._generate(len(self.calls), ids)))
        return self.calls[-1]

    async def _generate(self, call: int, ids: Sequence[int]) -> AsyncIterator[str]:
        replica = self._name or str(call)
        yield replica
        box = self._boxes.setdefault(replica, asyncio.Queue())
        async for message in self._answer(call):
            box.put_nowait([numbered(event, ids[event.id]) for event in message])

    async def _messages(self, replica: str) -> AsyncIterator[bytes]:
        box = self._boxes.setdefault(replica, asyncio.Queue())
        while (message := await box.get()) is not None:
            for data in encode_events(message):
                yield data

    def end(self, replica: str) -> None:
        """End the stream of messages for now."""
        self._boxes[replica].put_nowait(None)


def ask(
    handle: Handle, n: int = 1, timeout: float | None = None
) -> tuple[list[list[Any]], ServeLink, EngineClient, list[int]]:
    heard: list[list[Any]] = [[] for _ in range(n)]
    client = EngineClient(lambda command: link.send(command), confirms=True)
    link = ServeLink(handle, client.receive, lambda: None)
    assert link.loaded.result(PATIENCE) == FACTS
    ids = client.add(messages.Request([1, 2], n=n, timeout=timeout), *(each.append for each in heard))
    return heard, link, client, ids


def ended(heard: list[Any]) -> bool:
    return any(type(event).__name__ in ("Finished", "Failed") for event in heard)


def test_a_speech_comes_in_parts():
    async def answer(call: int) -> AsyncIterator[Any]:
        yield [messages.SpeechPart(0, np.ones(3, np.float32))]
        yield [messages.SpeechPart(0, np.zeros(2, np.float32)), messages.SpeechEnded(0, 2)]

    client = EngineClient(lambda command: link.send(command), confirms=True)
    link = ServeLink(Handle(answer), client.receive, lambda: None)
    stream = SpeechStream()
    client.speak(lambda id: messages.Speak(id, SpokenText("a", [1], [], 2, 0), 0.0), stream)
    parts = [stream.next().result(PATIENCE) for _ in range(3)]
    assert [None if part is None else part.tolist() for part in parts] == [[1, 1, 1], [0, 0], None]
    assert stream.n_frames == 2


def test_the_time_of_a_request_is_over_while_it_waits_for_a_replica():
    class Full(Handle):
        async def _generate(self, call: int, ids: Sequence[int]) -> AsyncIterator[str]:
            await asyncio.sleep(3600)
            yield "never"

    handle = Full(lambda _: None)
    heard, link, _, ids = ask(handle, n=2, timeout=0.1)
    wait_until(lambda: all(map(ended, heard)))
    assert heard == [[messages.Finished(id, "", "timeout", messages.Timings())] for id in ids]
    wait_until(lambda: handle.calls[0].cancelled)
    link.close()


def test_a_replica_that_dies_before_it_answers_is_no_loss():
    async def answer(call: int) -> AsyncIterator[Any]:
        yield [messages.Accepted(0)]
        if call < 2:
            await asyncio.sleep(0.02)
            raise RuntimeError("the actor died")
        yield [messages.Output(0, [5], ["a"]), messages.Finished(0, "", "stop", messages.Timings())]

    handle = Handle(answer)
    (heard,), link, _, (id,) = ask(handle)
    wait_until(lambda: ended(heard))
    assert len(handle.calls) == 3
    assert heard[-2:] == [messages.Output(id, [5], ["a"]), messages.Finished(id, "", "stop", messages.Timings())]
    link.close()


@pytest.mark.parametrize("said", [True, False])
def test_a_replica_that_dies_later_or_always_is_an_error(said):
    async def answer(call: int) -> AsyncIterator[Any]:
        yield [messages.Output(0, [5], ["a"])] if said else [messages.Accepted(0)]
        await asyncio.sleep(0.02)
        raise RuntimeError("the actor died")

    handle = Handle(answer)
    (heard,), link, _, _ = ask(handle)
    wait_until(lambda: ended(heard))
    assert len(handle.calls) == (1 if said else 3)
    assert isinstance(heard[-1].error, pumice.EngineDiedError)
    link.close()


def test_one_stream_brings_what_a_replica_says_of_all_requests():
    async def answer(call: int) -> AsyncIterator[Any]:
        for token in range(20):
            yield [messages.Output(0, [token], ["a"])]
            await asyncio.sleep(0.001)
        yield [messages.Finished(0, "", "stop", messages.Timings())]

    handle = Handle(answer, "one")
    (heard,), link, client, _ = ask(handle)
    others: list[list[Any]] = [[] for _ in range(15)]
    for each in others:
        client.add(messages.Request([1]), each.append)
    wait_until(lambda: all(map(ended, [heard, *others])))
    for each in [heard, *others]:
        assert [event.tokens[0] for event in each[:-1]] == list(range(20))
    assert len(handle.calls) == 16
    assert len(handle.listened) == 1
    link.close()


def test_the_state_of_all_replicas_is_the_sum_of_theirs():
    snapshot, ram, disk = messages.Snapshot, Tally(n_bytes=5, n_saved=1), Tally(n_entries=2)
    one = snapshot(1, 2, 4, 2, {0: 8, 32: 4}, {0: 7, 32: 4}, 9, {"ram": ram}, n_lacked=1)
    two = snapshot(0, 1, 4, 3, {0: 8}, {0: 1}, 1, {"ram": Tally(n_bytes=1), "disk": disk}, n_reading=3)
    tiers = {"ram": Tally(n_bytes=6, n_saved=1), "disk": Tally(n_entries=2)}
    assert added([one, two]) == snapshot(1, 3, 8, 5, {0: 16, 32: 4}, {0: 8, 32: 4}, 10, tiers, 3, 1)
    assert added([]) == snapshot(0, 0, 0, 0, {}, {}, 0)
