"""Streams of coroutines: what an engine told by now comes as one."""

import asyncio
from threading import Thread

import pytest

from pumice.chat import ChatDelta
from pumice.engine import EngineClient, Request, Timings
from pumice.engine.messages import Failed, Finished, Output
from pumice.errors import EngineError
from pumice.streaming.stream import AsyncStream, Stream
from waiting import PATIENCE


def told(*events: tuple, between: int | None = None) -> list[list[str]]:
    """The texts of each turn of a stream whose engine tells of ``events``, the ones after ``between`` later."""

    async def run() -> list[list[str]]:
        client = EngineClient(lambda command: None)
        (stream,) = AsyncStream.open(client, Request([1]))
        id = stream._id
        client.receive([make(id) for make in events[:between]])
        turns = []
        try:
            while pieces := await stream.ready():
                turns.append([piece.text for piece in pieces])
                if len(turns) == 1 and between is not None:
                    asyncio.get_running_loop().call_later(0.05, client.receive, [make(id) for make in events[between:]])
        except EngineError as error:
            turns.append([str(error)])
        return turns

    return asyncio.run(asyncio.wait_for(run(), PATIENCE))


def output(*texts: str):
    return lambda id: Output(id, list(range(len(texts))), texts)


def finished(id: int) -> Finished:
    return Finished(id, "end", "stop", Timings())


def failed(id: int) -> Failed:
    return Failed(id, EngineError("broken"))


def test_available_pieces_come_at_once():
    assert told(output("a"), output("b", "c"), finished) == [["a", "b", "c"], ["end"]]
    assert told(output("a"), output("b"), finished, between=1) == [["a"], ["b"], ["end"]]


def test_threads_share_the_pieces_of_a_stream() -> None:
    client, taken = EngineClient(lambda command: None), []
    (stream,) = Stream.open(client, Request([1]))
    threads = [Thread(target=lambda: taken.extend(stream), daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for make in (output("a"), output("b", "c"), finished):
        client.receive([make(stream._id)])
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads)
    assert sorted(piece.text for piece in taken) == ["a", "b", "c", "end"]


def test_tasks_share_the_pieces_of_a_stream() -> None:
    async def read(stream: AsyncStream) -> list[str]:
        return [piece.text async for piece in stream]

    async def run() -> list[list[str]]:
        client, n_made = EngineClient(lambda command: None), 0

        def make() -> Request:
            nonlocal n_made
            n_made += 1
            return Request([1])

        stream = AsyncStream.later(client, make)
        readers = [asyncio.create_task(read(stream)) for _ in range(4)]
        while stream._id is None:
            await asyncio.sleep(0.01)
        client.receive([make(stream._id) for make in (output("a"), output("b", "c"), finished)])
        texts = await asyncio.gather(*readers)
        assert n_made == 1
        return texts

    texts = asyncio.run(asyncio.wait_for(run(), PATIENCE))
    assert sorted(text for part in texts for text in part) == ["a", "b", "c", "end"]


def test_pieces_before_an_error_are_delivered():
    assert told(output("a"), output("b"), failed) == [["a", "b"], ["broken"]]


@pytest.mark.parametrize(
    ("first", "next", "may"),
    [
        ({"reasoning": "a"}, {"reasoning": "b"}, True),
        ({"reasoning": "a"}, {"content": "b"}, True),
        ({"content": "a"}, {"tool_calls": ["b"]}, True),
        ({"content": "a"}, {"reasoning": "b"}, False),
        ({"tool_calls": ["a"]}, {"content": "b"}, False),
    ],
)
def test_deltas_are_joined_in_their_order(first, next, may):
    assert ChatDelta(**first).may_join(ChatDelta(**next)) is may
