"""``return_progress`` and ``timings_per_token``: what llama-server sends of the demo model with ``-b 64``."""

import json
from collections.abc import Iterator

import httpx2
import pytest

import pumice
from imported_late import Late
from server_thread import Running, running
from waiting import wait_until

openai = Late("openai")

TEXT = " ".join(f"word{i} and more" for i in range(25))
MESSAGES = {"messages": [{"role": "user", "content": TEXT}]}
BODIES = {
    "/completion": {"prompt": TEXT, "n_predict": 3},
    "/v1/completions": {"prompt": TEXT, "max_tokens": 3},
    "/v1/chat/completions": {**MESSAGES, "max_tokens": 3},
    "/v1/responses": {"input": TEXT, "max_output_tokens": 3},
}
N_PROMPT = dict(zip(BODIES, [118, 118, 152, 152], strict=True))
READ = {118: [0, 64, 118], 152: [0, 64, 128, 152]}  # total: processed, in each event
EVENT = {"/v1/chat/completions": "chat.completion.chunk", "/v1/completions": "text_completion"}
EVENT["/v1/responses"] = "response.in_progress"
BOTH = {"return_progress": True, "timings_per_token": True}


@pytest.fixture(scope="module")
def small_batches() -> Iterator[Running]:
    loaded = pumice.load(n_batch=64, config={"chat_template": "chatml"})
    with loaded as model, running(model, context_shift=True) as server:
        yield server


def events(server: Running, path: str, **fields) -> list[dict]:
    body = {**BODIES.get(path, {}), "stream": True, "temperature": 0, **fields}
    with server.client.stream("POST", path, json=body) as response:
        lines = [line.removeprefix("data: ") for line in response.iter_lines() if line.startswith("data: {")]
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("path", BODIES)
def test_prompt_progress_and_timings_of_a_stream(small_batches, path):
    total = N_PROMPT[path]
    told = events(small_batches, path, **BOTH, cache_prompt=False)
    read = [event for event in told if "prompt_progress" in event]
    assert {event.get("object", event.get("type")) for event in read} == {EVENT.get(path)}
    progress = [event["prompt_progress"] for event in read]
    told_of = [(each["processed"], each["total"], each["cache"]) for each in progress]
    assert told_of == [(n, total, 0) for n in READ[total]]
    times = [each["time_ms"] for each in progress]
    assert times == sorted(times)
    assert all(isinstance(each, int) for each in times)
    timings = [event["timings"] for event in read]
    assert [each["prompt_n"] for each in timings] == READ[total]
    assert timings[0]["prompt_ms"] == 0
    assert {each["predicted_n"] for each in timings[:-1]} == {0}
    parts = [event["timings"] for event in told[told.index(read[-1]) + 1 :] if "timings" in event]
    counts = [each["predicted_n"] for each in parts]
    assert 1 <= counts[0] <= counts[-1] == 3
    assert counts == sorted(counts)
    assert {each["prompt_n"] for each in parts} == {total}


@pytest.mark.parametrize("path", BODIES)
def test_progress_of_a_prompt_that_the_cache_has(small_batches, path):
    total = N_PROMPT[path]
    assert not any("prompt_progress" in event for event in events(small_batches, path))
    told = events(small_batches, path, return_progress=True)
    found = [event["prompt_progress"] for event in told if "prompt_progress" in event]
    assert [(each["processed"], each["cache"]) for each in found] == [(total - 1, total - 1), (total, total - 1)]
    assert [event for event in told if "timings" in event] == told[-1:]
    assert told[-1]["timings"]["cache_n"] == total - 1


@pytest.mark.parametrize("path", BODIES)
def test_answers_at_once_have_no_progress(small_batches, path):
    body = {**BODIES[path], **BOTH}
    assert "prompt_progress" not in small_batches.client.post(path, json=body).json()
    for name in BOTH:
        refused = small_batches.client.post(path, json={**body, name: "yes"})
        assert refused.status_code == 400
        assert name in refused.json()["error"]["message"]


def test_prompt_progress_in_an_official_client(small_batches):
    with (
        openai.OpenAI(base_url=f"{small_batches.url}/v1", api_key="unused") as client,
        client.chat.completions.stream(model="demo", **MESSAGES, max_tokens=3, extra_body=BOTH) as stream,
    ):
        for _ in stream:
            pass
        message = stream.current_completion_snapshot.choices[0].message
    assert message.role == "assistant"
    assert message.content


def test_a_client_that_leaves_while_its_prompt_is_read(small_batches):
    """It sees the first event, and its generation ends."""
    body = {"prompt": TEXT, "n_predict": -1, "stream": True, "return_progress": True, "cache_prompt": False}
    with (
        httpx2.Client(base_url=small_batches.url, timeout=60) as client,
        client.stream("POST", "/completion", json=body | {"ignore_eos": True}) as response,
    ):
        assert next(line for line in response.iter_lines() if "prompt_progress" in line)
    model = small_batches.model
    wait_until(lambda: model.engine.snapshot().n_running == model.engine.snapshot().n_waiting == 0)
