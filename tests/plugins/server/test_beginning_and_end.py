"""The beginning and the end of a server: what it answers while its model is loaded, and what becomes of streams."""

import asyncio
import json
import signal
import subprocess
import sys
import threading
import time

import httpx2
import pytest

from pumice.plugin.unstable import ModelSpec
from pumice_server.application import make_application
from pumice_server.http.gate import Gate
from pumice_server.models.served_models import Models
from pumice_server.settings import Settings
from server_thread import listening, running
from waiting import PATIENCE, wait_until


def complete(url: str) -> httpx2.Response:
    return httpx2.post(f"{url}/v1/completions", json={"prompt": "Once", "max_tokens": 2}, timeout=PATIENCE)


def test_while_the_model_is_loaded(model, caplog):
    """Half of it is done: health says so, and requests wait for the other half."""
    go, answers = threading.Event(), []

    def load(spec, progress, deliver):
        progress(5, 10)
        assert go.wait(PATIENCE)
        return model

    models = Models([ModelSpec(["slow"], "")], load, Settings(timeout=PATIENCE))
    with listening(make_application(models)) as (url, client):
        asking = threading.Thread(target=lambda: answers.append(complete(url)))
        asking.start()
        wait_until(lambda: "Loading model: 50 %" in client.get("/health").text)
        assert client.get("/health").status_code == client.get("/readyz").status_code == 503
        assert caplog.records == []  # who asks, asks often
        assert client.get("/livez").status_code == 200
        assert client.get("/v1/models").json()["data"][0]["status"] == {"value": "loading"}
        time.sleep(0.2)
        assert answers == []
        go.set()
        asking.join(PATIENCE)
        assert answers[0].status_code == 200
        assert client.get("/health").json() == {"status": "ok"}


def test_requests_waiting_for_a_model_at_shutdown_are_answered():
    begun, go, answers = threading.Event(), threading.Event(), []

    class Late:
        closed = threading.Event()

        def tokenize(self, text):
            return []

        def close(self):
            self.closed.set()

    def load(spec, progress, deliver):
        begun.set()
        assert go.wait(PATIENCE)
        return Late()

    models = Models([ModelSpec(["slow"], "")], load, Settings(timeout=PATIENCE))
    with listening(make_application(models)) as (url, _):
        asking = threading.Thread(target=lambda: answers.append(complete(url)))
        asking.start()
        assert begun.wait(PATIENCE)
        models.drain(0.0)
        asking.join(PATIENCE)
        go.set()
        assert (answers[0].status_code, answers[0].json()["error"]["message"]) == (503, "the server is stopping")
        assert Late.closed.wait(PATIENCE)


ENDLESS = {"max_tokens": 100_000, "max_output_tokens": 100_000, "ignore_eos": True, "stream": True}
STOPPING = "the server is stopping"
ERROR = {"message": STOPPING, "param": None}
OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": STOPPING}, "request_id": "mine"}
LAST = [  # path, body, the last event without the fields that are different each time
    ("/v1/completions", {"prompt": "Once"}, {"error": ERROR | {"type": "unavailable_error", "code": 503}}),
    ("/v1/messages", {"messages": [{"role": "user", "content": "Once"}]}, OVERLOADED),
    ("/v1/responses", {"input": "Once"}, ERROR | {"type": "error", "code": "unavailable_error"}),
]


STOPPED_BEFORE_ITS_LOOP = """
import signal, socket, sys
from pumice.plugin.unstable import ModelSpec
from pumice_server.command.serving import serve
from pumice_server.settings import Settings

models = [ModelSpec([name], name) for name in ("one", "two")]
with socket.create_server(("127.0.0.1", 0)) as listening:
    serve(models, Settings(), [listening], {}, confine=lambda: signal.raise_signal(int(sys.argv[1])))
print("ended")
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_the_event_loop_runs_stops_the_server(number):
    script = [sys.executable, "-c", STOPPED_BEFORE_ITS_LOOP, str(int(number))]
    result = subprocess.run(script, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (result.returncode, result.stdout) == (0, "ended\n"), result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("begins", [True, False])
def test_a_request_that_is_cancelled_ends_as_cancelled(begins):
    """Only the end of the server becomes an answer, and only where none has begun."""

    async def app(scope, receive, send):
        if begins:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        reached.set()
        await asyncio.Event().wait()

    async def send(message):
        sent.append(message["type"])

    async def cancel() -> bool:
        scope = {"type": "http", "method": "GET", "path": "/", "headers": [(b"host", b"localhost")]}
        gate = Gate(app, settings, lambda *_: None, stopping=lambda: begins)
        task = asyncio.create_task(gate(scope, None, send))
        await reached.wait()
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    settings, reached, sent = Settings(), asyncio.Event(), []
    assert asyncio.run(cancel())
    assert sent == ["http.response.start"] * begins


@pytest.mark.parametrize(("path", "body", "expected"), LAST)
def test_a_stream_cut_at_shutdown_says_so(model, path, body, expected):
    with running(model, context_shift=True) as server:
        models = server.application.state.models
        with server.client.stream("POST", path, json=body | ENDLESS, headers={"X-Request-Id": "mine"}) as response:
            lines = (line for line in response.iter_lines() if line.startswith("data: "))
            first = json.loads(next(lines).removeprefix("data: "))
            models.drain(0.0)
            rest = [json.loads(line.removeprefix("data: ")) for line in lines]
        numbers = [each.pop("sequence_number") for each in (first, *rest) if "sequence_number" in each]
        assert numbers == list(range(len(numbers)))
        assert rest[-1] == expected
        wait_until(lambda: model.engine.snapshot().n_running == 0)
        assert [server.client.get(path).status_code for path in ("/readyz", "/livez")] == [503, 200]
