"""Ollama's pull: a model that a client names is fetched, if the server allows that, and served from then on."""

import asyncio
import itertools
import json
import socket
import threading
import time
from collections import Counter
from pathlib import Path

import httpx2
import ollama
import pytest
from starlette.exceptions import HTTPException

import hub_server
from gguf_files import tiny_llama
from pumice.plugin.unstable import ModelSpec
from pumice_server.models.model_events import ModelEvents
from pumice_server.models.served_models import Models
from pumice_server.pools import LISTENERS, PULLS
from server_thread import running, serving
from waiting import PATIENCE, wait_until

OPTIONS = {"backend": "numpy", "kv_type": "f32", "config": {"chat_template": "plain"}}


@pytest.fixture
def hub(tmp_path, monkeypatch):
    with hub_server.serve() as hub:
        hub.content_url = hub.url  # clients are not led to another private host
        hub_server.use(hub, tmp_path, monkeypatch)
        path = tiny_llama(tmp_path / "tiny.gguf")
        hub.repositories["a/b"] = hub_server.Repository({"tiny-F32.gguf": path.read_bytes()})
        yield hub


def test_a_model_is_pulled_and_served(hub, tmp_path):
    spec = ModelSpec(["first"], str(tmp_path / "tiny.gguf"), OPTIONS)
    with serving(spec, ModelSpec(["second"], "absent.gguf", OPTIONS), allow_pull=True) as server:
        client = ollama.Client(host=server.url)
        lines = list(client.pull("hf.co/a/b", stream=True))
        assert lines[0].status == "pulling manifest"
        assert lines[-1].status == "success"
        assert any(line.total and line.completed == line.total for line in lines)
        assert [each.model for each in client.list().models] == ["first", "second", "hf.co/a/b"]
        answer = client.generate("hf.co/a/b", "a", raw=True, options={"num_predict": 3})
        assert answer.eval_count == 3
        assert client.pull("hf.co/a/b").status == "success"
        with pytest.raises(ollama.ResponseError, match="c/d") as error:
            client.pull("hf.co/c/d")
        assert error.value.status_code == 404


@pytest.mark.parametrize(
    "name",
    [
        "/etc/passwd", "../x", "~/x", "", "a b", "file:///etc/passwd", "http://127.0.0.1/x", "notes.gguf",
        "sub/notes.gguf", "link/notes.gguf", "./sub/notes.gguf", "notes.gguf\n", "https://a:b@example.org/x.gguf",
        "https://[/x", "x" * 1000,
    ],
)  # fmt: skip
def test_a_path_is_no_name_of_a_model(model, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    (tmp_path / "link").symlink_to("sub")
    for path in ("notes.gguf", "sub/notes.gguf"):
        tiny_llama(tmp_path / path)
    with running(model, allow_pull=True) as server:
        for stream in (True, False):
            answer = server.client.post("/api/pull", json={"model": name, "stream": stream})
            assert answer.status_code == 400, answer.text


def test_private_hosts_are_not_asked(hub, model):
    """The error is the same for an open port, a closed one, and one without a model."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    own = hub.url.replace("http://127.0.0.1", "localhost")
    with running(model, allow_pull=True) as server:
        for host in [f"localhost:{port}", own, "localhost", "[::1]", "127.0.0.2", "2130706434", "169.254.169.254"]:
            address = f"https://{host}/x.gguf"
            answer = server.client.post("/api/pull", json={"model": address, "stream": False})
            told = f"{address}: the model cannot be fetched; see the server's log"
            assert (answer.status_code, answer.json()) == (502, {"error": told})
    assert hub.requests == []


def test_a_model_is_fetched_followed_and_deleted(hub, model, monkeypatch):
    """llama-server's router: what happens comes as events, to every client that follows the models."""
    monkeypatch.setattr(LISTENERS, "held", Counter())  # without those of other tests
    with running(model, allow_pull=True) as server, httpx2.Client(base_url=server.url, timeout=PATIENCE) as other:
        models: Models = server.application.state.models
        with other.stream("GET", "/models/sse") as stream:
            events = (json.loads(line[6:]) for line in stream.iter_lines() if line.startswith("data: "))
            wait_until(lambda: LISTENERS.n_held)
            assert server.client.post("/models", json={"model": "a/b"}).json() == {"success": True}
            seen = list(itertools.takewhile(lambda each: each["event"] != "download_finished", events))
            assert {"model": "*", "event": "models_reload"} in seen
            progress = [each["data"] for each in seen if each["event"] == "download_progress"]
            assert all(part["done"] <= part["total"] for each in progress for part in each.values())
            assert server.client.post("/models", json={"model": "a/b"}).status_code == 400
            file = Path(models.served_models[-1].spec.path)
            assert file.is_file()
            assert server.client.delete("/models?model=a/b").json() == {"success": True}
            assert next(events) == {"model": "a/b", "event": "model_remove"}
            assert not file.exists()
            assert models.known("a/b") is None
            server.client.post("/models", json={"model": "c/d"})
            assert next(events)["event"] == "download_failed"
        for name, status in (("demo", 403), ("a/b", 404), ("", 404)):
            assert server.client.delete(f"/models?model={name}").status_code == status
        wait_until(lambda: not LISTENERS.n_held)


def test_a_follower_that_leaves_leaves_nothing_behind():
    async def leave():
        events = ModelEvents()
        stream = events.follow(events.listen())
        coming = asyncio.ensure_future(anext(stream))
        while len(asyncio.all_tasks()) < 4:  # this one, the stream's, and the two that it waits for
            await asyncio.sleep(0)
        coming.cancel()
        await asyncio.wait({coming})
        await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(leave())


def test_followers_are_bounded(monkeypatch):
    """Also what waits for one that takes nothing; its stream ends."""
    events = ModelEvents()
    monkeypatch.setattr(LISTENERS, "held", Counter())  # without those of other tests
    listeners = [events.listen() for _ in range(LISTENERS.n_places)]
    with pytest.raises(HTTPException, match="too many clients follow"):
        events.listen()
    for number in range(300):
        events.status("demo", "loading", number / 300)
    assert LISTENERS.n_held == 0
    assert {listener.qsize() for listener in listeners} == {256}


def test_nothing_is_fetched_unless_that_is_allowed(server):
    assert server.client.post("/api/pull", json={"model": "hf.co/a/b"}).status_code == 403
    assert server.client.post("/api/pull", json={"model": "demo"}).status_code == 200
    assert server.client.post("/api/push", json={}).status_code == 501
    missing = {"model": "new", "from": "hf.co/a/b"}
    assert server.client.post("/api/create", json=missing).status_code == 404
    assert server.client.post("/api/copy", json={"source": "hf.co/a/b", "destination": "new"}).status_code == 404


@pytest.fixture
def slow(hub):
    """Repositories whose contents come slowly."""
    hub.faults.slow = 0.2
    for number in range(PULLS.n_places // 2 + 1):
        hub.repositories[f"slow/m{number}"] = hub_server.Repository({"x.gguf": hub_server.content(5_000_000, number)})
    return hub


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "pumice-pull"]


def test_downloads_are_few_shared_and_end_with_their_clients(slow, model, monkeypatch):
    monkeypatch.setattr(PULLS, "held", Counter())  # without those of other tests
    with running(model, allow_pull=True) as server:
        names = [f"slow/m{number}" for number in range(PULLS.n_places // 2)]
        with httpx2.Client(base_url=server.url, timeout=PATIENCE) as client:
            streams = [client.stream("POST", "/api/pull", json={"model": name}) for name in [*names, names[0]]]
            for stream in streams:
                assert stream.__enter__().status_code == 200
            wait_until(lambda: len(slow.sent) == len(names))
            assert len(threads()) == len(names), "two clients of one model share its download"
            refused = client.post("/api/pull", json={"model": f"slow/m{len(names)}"})
            assert refused.status_code == 503
            assert refused.headers["Retry-After"]
            assert client.get("/health").status_code == 200
            for stream in streams[1:]:
                stream.__exit__(None, None, None)
            wait_until(lambda: len(threads()) == 1)  # of the model that still has a client
            streams[0].__exit__(None, None, None)
            wait_until(lambda: not threads())


def test_a_server_that_stops_does_not_wait_for_downloads(slow, tmp_path):
    slow.faults.slow = 2 * PATIENCE
    spec = ModelSpec(["first"], str(tmp_path / "tiny.gguf"), OPTIONS)
    started = time.monotonic()
    with serving(spec, allow_pull=True, drain=PATIENCE) as server, httpx2.Client(timeout=PATIENCE) as client:
        with client.stream("POST", f"{server.url}/api/pull", json={"model": "slow/m0"}) as answer:
            lines = answer.iter_lines()
            assert "manifest" in next(lines)
            wait_until(lambda: slow.sent)
            server.models.drain(PATIENCE)
            assert "the server is stopping" in next(line for line in lines if "error" in line)
        with pytest.raises(httpx2.HTTPStatusError, match="503"):
            client.post(f"{server.url}/api/pull", json={"model": "slow/m1"}).raise_for_status()
    assert time.monotonic() - started < PATIENCE
    assert not threads()


def test_a_mirror_leads_nowhere_else(hub, model):
    hub.content_url = hub.url.replace("127.0.0.1", "localhost")
    with running(model, allow_pull=True) as server:
        answer = server.client.post("/api/pull", json={"model": "a/b", "stream": False})
    message = "a/b: the model cannot be fetched; see the server's log"
    assert (answer.status_code, answer.json()["error"]) == (502, message)
    assert hub.sent == []


def test_a_download_that_nobody_waits_for_is_cancelled(slow, model):
    with running(model, allow_pull=True) as server:
        assert server.client.post("/models", json={"model": "slow/m0"}).status_code == 200
        again = server.client.post("/models", json={"model": "slow/m0"})
        assert (again.status_code, len(threads()), "is being fetched already" in again.text) == (400, 1, True)
        assert server.client.post("/models/unload", json={"model": "slow/m0"}).json() == {"success": True}
        wait_until(lambda: not threads())


def test_models_that_clients_add_are_bounded(hub, model, monkeypatch):
    monkeypatch.setattr("pumice_server.models.served_models.MAX_MODELS", 3)
    with running(model, allow_pull=True) as server:
        names = ["a/b:F32", "a/b:f32", "hf.co/a/b:F32"]
        answers = [server.client.post("/api/pull", json={"model": name, "stream": False}) for name in names]
        assert [answer.status_code for answer in answers] == [200, 200, 503]
