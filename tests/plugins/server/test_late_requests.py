"""Requests whose time is over while they wait for others: each API's error, not an empty answer."""

import json
from collections.abc import Iterator

import httpx2
import pytest

import pumice
from imported_late import Late
from pumice.config import load_config
from pumice.engine.loop.policy import FairPolicy
from pumice.local_engine import load_model
from server_thread import Running, running
from waiting import wait_until

anthropic = Late("anthropic")
openai = Late("openai")

CHAT = {"messages": [{"role": "user", "content": "Once"}]}
RESPONSES = {"input": "Once", "store": False}
PATHS = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": {"prompt": ["Once", "Twice"], "n": 2},
    "/v1/responses": RESPONSES,
    "/v1/messages": {**CHAT, "max_tokens": 9},
    "/completion": {"prompt": "Once"},
    "/api/chat": CHAT,
    "/api/generate": {"prompt": "Once", "raw": True},
}
ENDLESS = {"max_tokens": 100_000, "ignore_eos": True}


@pytest.fixture(scope="module")
def one() -> Iterator[pumice.Model]:
    """A model that computes one sequence at once, which gives way to no other."""
    config, policy = load_config({"n_parallel": 1, "chat_template": "plain"}), FairPolicy(quantum=1e9)
    with load_model(pumice.demo_model_path(), config, policy=policy) as model:
        yield model


@pytest.fixture(scope="module")
def hurried(one) -> Iterator[Running]:
    with running(one, timeout=0.3, context_shift=True) as server:
        yield server


def begun(one, body: dict) -> httpx2.Response:
    """The answer where requests have time to begin, which is more on a slow machine, and not to end."""
    for seconds in (1.0, 5.0, 30.0):
        with running(one, timeout=seconds, context_shift=True) as server:
            answer = server.client.post("/v1/completions", json=body)
        if "--timeout" not in answer.text:
            break
    return answer


@pytest.fixture
def busy(one) -> Iterator[None]:
    """Another request has the only place."""
    with one.stream("Once", context_shift=True, **ENDLESS) as other:
        next(other)
        yield


def said(error: dict) -> str:
    """The message, in whichever form."""
    error = error.get("error", error)
    return error if isinstance(error, str) else error["message"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.usefixtures("busy")
def test_a_request_or_a_stream_that_was_never_begun(hurried, path):
    response = hurried.client.post(path, json={**PATHS[path], "stream": False})
    assert (response.status_code, response.headers["Retry-After"]) == (503, "1")
    assert "--timeout" in said(response.json())
    streamed = hurried.client.post(path, json={**PATHS[path], "stream": True})
    lines = [line for line in streamed.text.splitlines() if line and not line.startswith("event:")]
    assert "--timeout" in said(json.loads(lines[-1].removeprefix("data: ")))
    assert not any(word in line for line in lines for word in ("length", "max_tokens", "[DONE]"))


@pytest.mark.parametrize("stream", [False, True])
def test_what_has_text_keeps_it(one, stream):
    response = begun(one, {"prompt": "Once", "stream": stream, **ENDLESS})
    assert response.status_code == 200
    if stream:
        *events, done = [line.removeprefix("data: ") for line in response.text.splitlines() if line]
        assert done == "[DONE]"
        choices = [choice for each in events for choice in json.loads(each)["choices"]]
    else:
        choices = response.json()["choices"]
    assert choices[-1]["finish_reason"] == "length"
    assert "".join(choice["text"] for choice in choices)


def test_texts_that_take_too_long_to_embed(one):
    """The remaining texts are given up, so that the next request has its time."""
    with running(one, timeout=1.0) as server:

        def has_its_time() -> bool:
            response = server.client.post("/v1/embeddings", json={"input": ["Once upon a time " * 100] * 256})
            assert (response.status_code, "--timeout" in said(response.json())) == (503, True)
            return server.client.post("/v1/embeddings", json={"input": "Once"}).status_code == 200

        wait_until(has_its_time)
