"""``pumice route``: one address in front of several servers."""

import asyncio
import re
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import ExitStack

import httpx2
import pytest
from click.testing import CliRunner
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from pumice_server.routing.application import make_router
from pumice_server.routing.command import command
from pumice_server.routing.servers import Servers
from pumice_server.settings import Settings
from server_thread import listening
from waiting import PATIENCE, wait_until

LONG = "Once upon a time there was a little fox who lived in a big house. "
NAMES = "abcdefgh"


class Behind:
    """A server behind the router, which records its requests."""

    def __init__(self) -> None:
        self.bodies: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.status, self.ended, self.goes_on = 200, threading.Event(), threading.Event()
        paths = [Route("/health", lambda _: Response()), Route("/{path:path}", self.answer, methods=["GET", "POST"])]
        self.application = Starlette(routes=paths)
        self.application.state.settings = Settings()

    async def answer(self, request: Request) -> Response:
        self.bodies.append((await request.body()).decode())
        self.headers.append(dict(request.headers))
        if request.url.path == "/stream":
            return StreamingResponse(self.parts())
        return JSONResponse({"path": request.url.path, "query": request.url.query}, self.status, {"X-Own": "1"})

    async def parts(self) -> AsyncIterator[bytes]:
        try:
            yield b"data: 1\n\n"
            await asyncio.to_thread(self.goes_on.wait, PATIENCE)
            yield b"data: 2\n\n"
        finally:
            self.ended.set()


async def listens() -> None:
    """Do nothing: the address is known."""


@pytest.fixture
def behind():
    return [Behind(), Behind()]


@pytest.fixture
def route(behind):
    """Return a client of a router in front of the given addresses and of the servers ``behind``."""
    with ExitStack() as stack:

        def begin(*others: str) -> httpx2.Client:
            urls = [stack.enter_context(listening(one.application))[0] for one in behind]
            application = make_router(Servers([*others, *urls], n_parallel=2), Settings(), listens)
            return stack.enter_context(listening(application))[1]

        yield begin


def closed_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        return f"http://127.0.0.1:{closed.getsockname()[1]}"


def say(text: str, **fields: object) -> dict[str, object]:
    return {**fields, "messages": [{"role": "user", "content": text}]}


def test_prompts_follow_their_beginning(behind, route):
    client = route()
    talks = [f"{name} {LONG}" for name in NAMES]
    for _ in range(3):
        for i, talk in enumerate(talks):
            assert client.post("/v1/chat/completions", json=say(talk, seed=len(talk))).status_code == 200
            talks[i] += LONG
    counts = [sum(f'"{name} ' in body for body in one.bodies) for one in behind for name in NAMES]
    assert set(counts) <= {0, 3}  # each conversation stays where it began
    client.get("/v1/files?limit=1")
    assert [one.bodies.count("") for one in behind] == [1, 0]  # what has no prompt is in one place


def test_requests_and_answers_pass_as_they_are(behind, route):
    client = route()
    answer = client.get("/v1/files/a%2Fb?limit=1", headers={"Authorization": "Bearer key", "X-Request-Id": "mine"})
    assert (answer.json(), answer.headers["x-own"]) == ({"path": "/v1/files/a/b", "query": "limit=1"}, "1")
    (headers,) = behind[0].headers
    assert (headers["authorization"], headers["x-request-id"]) == ("Bearer key", "mine")
    for foreign in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
        assert client.get("/v1/models", headers=foreign).status_code == 403
    own = {"Origin": str(client.base_url).rstrip("/")}
    assert client.get("/v1/models", headers=own).status_code == 200
    assert "origin" not in behind[0].headers[-1]
    kept = client.post("/v1/responses", json={"input": "x", "previous_response_id": "resp_1"})
    assert (kept.status_code, "stored responses" in kept.text) == (400, True)


def test_other_servers_answer_for_those_that_do_not(behind, route, caplog):
    dead = closed_address()
    client = route(dead)
    for text in NAMES:
        assert client.post("/v1/chat/completions", json=say(text)).status_code == 200
    assert client.get("/v1/models").status_code == 200
    wait_until(lambda: client.get("/health").json()["servers"][dead] is False)
    assert f"{dead}: " in caplog.text
    behind[0].status = 503
    for text in NAMES:
        assert client.post("/v1/chat/completions", json=say(text)).status_code == 200
    behind[1].status = 503
    assert client.post("/v1/chat/completions", json=say("i")).status_code == 503
    metrics = client.get("/metrics").text
    assert f'pumice_route_up{{server="{dead}"}} 0.0' in metrics
    assert re.search(r'pumice_route_requests_total\{.*status="200"\}', metrics)


def test_no_server_is_one_line():
    with listening(make_router(Servers([closed_address()], n_parallel=1), Settings(), listens)) as (_, client):
        answer = client.post("/v1/completions", json={"prompt": "x"})
        assert (answer.status_code, answer.json()["error"]["message"].startswith("no server answers: ")) == (503, True)
        wait_until(lambda: client.get("/health").status_code == 503)


@pytest.mark.parametrize("leaves", [False, True])
def test_a_stream_passes_part_by_part_and_ends_with_its_client(behind, route, leaves):
    client = route()
    with client.stream("POST", "/stream", json=say("x")) as answer:
        parts = answer.iter_raw()
        assert next(parts) == b"data: 1\n\n"
        assert re.search(r"pumice_route_running\{.*\} 1\.0", client.get("/metrics").text)
        if not leaves:
            for one in behind:
                one.goes_on.set()
            assert b"".join(parts) == b"data: 2\n\n"
    idle = re.compile(r"pumice_route_running\{.*\} 0\.0")
    wait_until(lambda: len(idle.findall(client.get("/metrics").text)) == len(behind))
    for one in behind:
        one.goes_on.set()
    wait_until(lambda: any(one.ended.is_set() for one in behind))


def test_a_server_that_ends_within_an_answer_cuts_it(route, behind, caplog):
    behind.clear()
    with socket.create_server(("127.0.0.1", 0)) as breaking:

        def answer() -> None:
            while True:
                try:
                    connection, _ = breaking.accept()
                except OSError:
                    return
                with connection:
                    is_check = b"/health" in connection.recv(65536)
                    head = b"HTTP/1.1 200 OK\r\n"
                    cut = b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"
                    connection.sendall(head + (b"Content-Length: 0\r\n\r\n" if is_check else cut))

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        client = route(f"http://127.0.0.1:{breaking.getsockname()[1]}")
        with pytest.raises(httpx2.RemoteProtocolError):
            client.post("/v1/completions", json={"prompt": "x"})
        assert "ended within an answer" in caplog.text
        assert "Traceback" not in caplog.text
        breaking.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("urls", [["localhost:8080"], ["http://"], ["http://a:99999"], ["http://a", "http://a"], []])
def test_wrong_addresses_are_refused(urls):
    assert CliRunner().invoke(command, urls).exit_code == 2
