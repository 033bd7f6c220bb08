"""Streams over HTTP: pings while nothing comes, and an end however it ends."""

import asyncio
import json
import time
from collections.abc import AsyncIterator

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from pumice_server import limits, logs
from pumice_server.http.answers import Streaming
from pumice_server.settings import Settings
from server_thread import connect, listening, running
from waiting import PATIENCE, wait_until


def sent(parts: AsyncIterator[bytes], ping: float | None, bodies: list[bytes]) -> bool:
    """Append the sent parts to ``bodies``; return True if the end was sent."""
    ended = []

    async def send(message) -> None:
        if message.get("body"):
            bodies.append(message["body"])

    async def receive():
        await asyncio.sleep(3600)

    async def run() -> None:
        response = Streaming(parts, lambda: ended.append(True), ping=ping)
        await response({"type": "http", "asgi": {"spec_version": "2.3"}}, receive, send)

    asyncio.run(run())
    return bool(ended)


async def parts() -> AsyncIterator[bytes]:
    yield b"first"
    await asyncio.sleep(0)
    yield b"last"


async def failing() -> AsyncIterator[bytes]:
    yield b"first"
    raise ValueError("secret")


def test_pings_come_while_nothing_else_does():
    bodies: list[bytes] = []

    async def slow() -> AsyncIterator[bytes]:
        yield b"first"
        while len(bodies) < 3:
            await asyncio.sleep(0.01)
        yield b"last"

    started = time.monotonic()
    sent(slow(), 0.15, bodies)
    first, *pings, last = bodies
    assert (first, set(pings), last) == (b"first", {b":\n\n"}, b"last")
    assert len(pings) >= 2  # more where the loop comes late to see two
    assert time.monotonic() - started > 0.29


@pytest.mark.parametrize("level", ["INFO", "DEBUG"])
def test_an_error_is_the_last_part_and_the_log_names_its_request(caplog, level):
    bodies: list[bytes] = []
    logs.begin({"method": "POST", "path": "/say"})
    with caplog.at_level(level, "pumice"):
        ended = sent(failing(), None, bodies)
    assert b"internal error" in bodies[-1]
    assert b"secret" not in bodies[-1]
    assert ended
    assert "POST /say: ValueError: secret" in caplog.text
    assert ("in failing" in caplog.text) == (level == "DEBUG")


@pytest.mark.parametrize("streamed", [False, True])
def test_a_reader_that_takes_nothing(monkeypatch, caplog, streamed):
    """The connection ends with what was not read, whether the answer comes at once or in parts."""
    monkeypatch.setattr(limits, "STALL_SECONDS", 0.2)
    ended = []

    async def many() -> AsyncIterator[bytes]:
        for _ in range(256):
            yield bytes(1 << 20)

    async def answer(request) -> Response:
        if not streamed:
            return Response(bytes(256 << 20))
        return Streaming(many(), lambda: ended.append(True), ping=None)

    application = Starlette(routes=[Route("/", answer)])
    application.state.settings = Settings()
    with listening(application) as (url, _), connect(url) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        wait_until(lambda: "did not read its response" in caplog.text)
        wait_until(lambda: bool(ended) == streamed)
        assert sum(map(len, iter(lambda: connection.recv(1 << 20), b""))) < 256 << 20


THINKING = (
    "{% for message in messages %}{% if message.role == 'assistant' %}<think>{{ message.reasoning_content }}</think>"
    "{% endif %}{{ message.content }}{% endfor %}"
    "{% if add_generation_prompt %}<think>\n{% endif %}"
)


def test_reasoning_is_ended_while_it_is_streamed(model):
    """llama-server's control: by the client of the answer, if it asked for that."""
    body = {"messages": [{"role": "user", "content": "Once"}], "stream": True, "max_tokens": 400, "ignore_eos": True}
    with running(model, keys=["a", "b"], chat={"chat_template": THINKING}) as server:

        def control(id: str, key: str = "a") -> dict:
            asked = {"id": id, "action": "reasoning_end"}
            return server.client.post("/v1/chat/completions/control", json=asked, headers=keyed(key)).json()

        def is_ended(controlled: bool) -> bool:
            """Whether the control succeeds, which comes too late where all tokens come before it."""
            asked = {**body, "reasoning_control": controlled}
            with (
                httpx2.Client(base_url=server.url, timeout=PATIENCE) as client,
                client.stream("POST", "/v1/chat/completions", json=asked, headers=keyed("a")) as stream,
            ):
                parts = (json.loads(line[6:]) for line in stream.iter_lines() if line[:7] == "data: {")
                thinking = (part for part in parts if part["choices"][0]["delta"].get("reasoning_content"))
                id = next(thinking)["id"]
                assert control(id, "b") == {"success": False, "message": "no active completion for this id"}
                ended = control(id)["success"]
                said = [part["choices"][0]["delta"] for part in parts]
            assert any(delta.get("content") for delta in said) is ended
            wait_until(lambda: "no active" in control(id)["message"])
            return ended

        wait_until(lambda: is_ended(controlled=True))
        assert not is_ended(controlled=False)


def keyed(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}
