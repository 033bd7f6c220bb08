"""Streams that outlive their connection."""

import json
from contextlib import closing
from http.client import HTTPConnection

import pytest

from pumice_server.pools import STREAMS
from server_thread import running
from waiting import PATIENCE, wait_until

BODY = {"messages": [{"role": "user", "content": "Once"}], "stream": True, "temperature": 0, "max_tokens": 60}
NAMED = {"X-Conversation-Id": "fox"}
CHAT = "/v1/chat/completions"


def state(server, id="fox", **headers):
    found = server.client.post("/v1/streams/lookup", json={"conversation_ids": [id, "none"]}, headers=headers).json()
    return found[0] if found else None


def text_of(data: bytes) -> str:
    events = [line.removeprefix("data: ") for line in data.decode().splitlines() if line.startswith("data: {")]
    deltas = [choice["delta"] for event in events for choice in json.loads(event)["choices"]]
    return "".join(delta.get("content") or "" for delta in deltas)


def test_an_answer_goes_on_without_its_client(server):
    whole = server.client.post(CHAT, json=BODY).content
    with server.client.stream("POST", CHAT, json=BODY, headers=NAMED) as response:
        first = next(response.iter_raw())
    wait_until(lambda: state(server)["is_done"])
    kept = server.client.get("/v1/stream/fox?from=0").content
    assert text_of(kept) == text_of(whole)
    assert kept.startswith(first)
    assert len(kept) == state(server)["total_bytes"]
    assert server.client.get(f"/v1/stream?conv_id=fox&from={len(first)}").content == kept[len(first) :]
    assert server.client.delete("/v1/stream/fox").status_code == 204
    assert state(server) is None
    assert server.client.get("/v1/stream/fox?from=-1").status_code == 400


def test_an_answer_is_read_while_it_is_written_and_stopped(model):
    body = {**BODY, "max_tokens": 100_000, "ignore_eos": True}
    with running(model, context_shift=True) as server:
        with server.client.stream("POST", CHAT, json=body, headers=NAMED) as response:
            next(response.iter_raw())
        with server.client.stream("GET", "/v1/stream/fox") as response:
            parts = response.iter_raw()
            seen = [next(parts)]
            assert server.client.delete("/v1/stream/fox").status_code == 204
            seen += parts
        assert b"[DONE]" not in b"".join(seen)
        assert state(server) is None


def test_each_key_has_its_own_and_pays_for_all_tokens(model, monkeypatch):
    with running(model, keys=["a", "b"], max_tokens_per_minute=100_000) as server:
        counted: list[int] = []
        monkeypatch.setattr(server.application.state.rates, "end", lambda client, n: counted.append(n))
        a, b = ({"Authorization": f"Bearer {key}"} for key in "ab")
        server.client.post(CHAT, json=BODY, headers=a)
        wait_until(lambda: counted)
        n_tokens = counted.pop()
        with server.client.stream("POST", CHAT, json=BODY, headers={**NAMED, **a}):
            pass
        wait_until(lambda: state(server, **a)["is_done"])
        wait_until(lambda: sum(counted) == n_tokens > 60)
        assert state(server, **b) is None
        assert server.client.get("/v1/stream/fox", headers=b).status_code == 404


def test_streams_that_nobody_reads_are_few(server):
    """They go on when their readers leave; beyond two of a client the oldest end, and nobody else waits for them."""
    endless = {**BODY, "max_tokens": 100_000, "ignore_eos": True}
    ids = [f"left-{number}" for number in range(12)]
    for id in ids:
        with server.client.stream("POST", CHAT, json=endless, headers={"X-Conversation-Id": id}) as response:
            next(response.iter_raw())
    wait_until(lambda: [state(server, id) is not None for id in ids] == [False] * 10 + [True] * 2)
    assert server.client.post(CHAT, json={**BODY, "stream": False, "max_tokens": 2}).status_code == 200
    for id in ids:
        server.client.delete(f"/v1/stream/{id}")
    wait_until(lambda: STREAMS.n_held == 0 or state(server, ids[-1]) is None)


@pytest.mark.parametrize("n_more", [1, 1000])
def test_old_streams_and_bytes_are_dropped(model, monkeypatch, n_more):
    monkeypatch.setattr(STREAMS, "n_places", 2 * 2 + 2 * STREAMS.n_held)  # one client has half
    monkeypatch.setattr("pumice_server.http.resumable.MAX_KEPT_STREAM", n_more)
    with running(model) as server:
        for id in "123":
            server.client.post(CHAT, json={**BODY, "max_tokens": 2}, headers={"X-Conversation-Id": id})
            wait_until(lambda id=id: state(server, id)["is_done"])
        assert [state(server, id) is None for id in "123"] == [True, False, False]
        assert server.client.get("/v1/stream/3?from=0").status_code == 410
        too_long = {"X-Conversation-Id": "x" * 1025}
        assert server.client.post(CHAT, json=BODY, headers=too_long).status_code == 400


@pytest.mark.parametrize("path", ["/v1/stream/fox", "/models/sse", "/v1/models", "/metrics", "/page/main.js"])
def test_head_has_no_body(server, path):
    """Parts of streams are written past h11, which drops the bodies of HEAD: the next answer would begin with them."""
    server.client.post(CHAT, json={**BODY, "max_tokens": 4}, headers=NAMED)
    with closing(HTTPConnection(server.url.removeprefix("http://"), timeout=PATIENCE)) as connection:
        connection.request("HEAD", path)
        assert connection.getresponse().read() == b""
        connection.request("GET", "/livez")
        assert json.load(connection.getresponse()) == {"status": "ok"}
