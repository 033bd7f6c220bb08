"""The server over replicas of Ray Serve: as on one machine, and a replica that dies is replaced."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count

import httpx2
import pytest

import pumice
from pumice.plugin.unstable import Replicas
from server_thread import listening
from waiting import PATIENCE, wait_until

pytestmark = pytest.mark.ray

CHAT = {"messages": [{"role": "user", "content": "Once"}], "temperature": 0, "max_tokens": 12}
OPTIONS = {"n_parallel": 4, "config": {"chat_template": "plain"}}
ENDLESS = {"prompt": "Once", "max_tokens": 100_000, "ignore_eos": True, "stream": True}
STORY = "Once upon a time there was a fox who lived in a small house near the river, and every day he went out. "


@contextmanager
def serving(replicas: Replicas) -> Iterator[tuple[httpx2.Client, pumice.Model]]:
    from pumice.plugin.unstable import ModelSpec
    from pumice_ray.deployment import load_replicas
    from pumice_server.application import make_application
    from pumice_server.command.serving import lifespan
    from pumice_server.models.served_models import Models
    from pumice_server.settings import Settings

    spec = ModelSpec(["demo"], str(pumice.demo_model_path()), OPTIONS)
    load = partial(load_replicas, spec, replicas)
    models = Models([spec], lambda _, __, deliver: load(deliver), Settings(context_shift=True))
    with listening(make_application(models, lambda _: lifespan(models, "", print))) as (_, client):
        client.timeout = 120
        client.post("/v1/completions", json={"prompt": "a", "max_tokens": 1})
        yield client, models.served_models[0].service.model


@pytest.fixture(scope="module")
def server(cluster):
    with serving(Replicas(2, 2, n_cpus=0.25)) as (client, model):
        yield client, model


def described(model: pumice.Model) -> list:
    return model.engine.link._handle.broadcast("describe").results(timeout_s=PATIENCE)


def running(model: pumice.Model) -> int:
    return model.engine.snapshot().n_running


@pytest.mark.ray_essential
def test_answers_are_those_of_one_machine(server):
    client, _ = server
    greedy = {"temperature": 0, "max_tokens": 16}
    with pumice.load(**OPTIONS) as here:
        text = here.generate("Once upon a time", **greedy).text
        content = here.chat(CHAT["messages"], temperature=0, max_tokens=12).message.content
        vector = here.embed(["a cat"])[0].tolist()
    body = {"prompt": "Once upon a time", **greedy}
    assert client.post("/v1/completions", json=body).json()["choices"][0]["text"] == text
    with client.stream("POST", "/v1/completions", json={**body, "stream": True}) as response:
        parts = [json.loads(line[6:]) for line in response.iter_lines() if line.startswith("data: {")]
    assert "".join(part["choices"][0]["text"] for part in parts) == text
    assert client.post("/v1/chat/completions", json=CHAT).json()["choices"][0]["message"]["content"] == content
    found = client.post("/v1/embeddings", json={"input": "a cat"}).json()["data"][0]["embedding"]
    assert found == pytest.approx(vector, abs=1e-5)
    refused = client.post("/v1/completions", json={"prompt": [5] * 9999})
    assert refused.status_code == 400
    assert refused.json()["error"]["n_prompt_tokens"] == 9999
    two = client.post("/v1/completions", json={**body, "n": 2}).json()["choices"]
    assert [choice["text"] for choice in two] == [text, text]


def test_metrics_and_ps_tell_of_all_replicas(server, cluster):
    client, _ = server
    metrics = client.get("/metrics").text
    assert 'pumice_engine_slots{model="demo"} 8.0' in metrics
    assert client.get("/health").json() == {"status": "ok"}
    command = [sys.executable, "-m", "pumice", "ps", "--json", f"--ray={cluster.address}"]

    def models() -> dict[int, str]:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        return {row["pid"]: row["model"] for row in json.loads(done.stdout) if row["command"] == "serve"}

    wait_until(lambda: list(models().values()) == ["demo", "demo"])


def test_a_client_that_leaves_ends_its_generation(server):
    client, model = server
    with client.stream("POST", "/v1/completions", json=ENDLESS) as response:
        lines = response.iter_lines()
        next(lines)
        wait_until(lambda: running(model) == 1)
    wait_until(lambda: running(model) == 0)


def test_a_prompt_goes_where_its_beginning_is(server):
    """Serve takes another replica if one does not report its load in a moment, so the test tries again."""
    client, _ = server
    numbers = count()

    def all_go() -> bool:
        cached, story = [], f"{next(numbers)}. {STORY * 3}"
        for i in range(12):
            usage = client.post("/v1/completions", json={"prompt": f"{story}{i}", "max_tokens": 1}).json()["usage"]
            cached.append(usage["prompt_tokens_details"]["cached_tokens"])
        return cached[0] < 32 and min(cached[1:]) >= 64

    wait_until(all_go)


@pytest.mark.ray_essential
def test_a_replica_that_is_killed_in_midstream_is_an_error_and_is_replaced(server):
    client, model = server
    answers: list[str] = []
    begun = threading.Barrier(5)

    def ask() -> None:
        with client.stream("POST", "/v1/completions", json=ENDLESS) as response:
            lines = response.iter_lines()
            next(lines)
            begun.wait(PATIENCE)
            answers.append([line for line in lines if line][-1])

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    begun.wait(PATIENCE)
    before = {each["pid"] for each in described(model)}
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    for thread in threads:
        thread.join(PATIENCE)
    errors = [json.loads(answer.removeprefix("data: "))["error"] for answer in answers]
    assert [error["code"] for error in errors] == [503] * 4
    assert client.post("/v1/completions", json={"prompt": "a", "max_tokens": 2}).status_code == 200
    wait_until(lambda: len({each["pid"] for each in described(model)} - before) == 2, 120)


def test_a_model_that_cannot_be_loaded_is_told(cluster):
    from pumice.plugin.unstable import ModelSpec
    from pumice_ray.deployment import load_replicas

    spec = ModelSpec(["demo"], str(pumice.demo_model_path()), {"backend": "nosuch"})
    with pytest.raises(pumice.PumiceError) as told:
        load_replicas(spec, Replicas(n_cpus=0.25), lambda function, *arguments: function(*arguments))
    assert "\n" not in str(told.value)
