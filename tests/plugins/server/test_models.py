"""Several models, a process each: loaded when asked for, unloaded for others, started again when killed."""

import asyncio
import json
import os
import re
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import httpx2
import pytest

import pumice
from gguf_files import tiny_llama
from installed_plugins import passed
from pumice.engine.messages import DeviceFacts
from pumice.plugin.unstable import ModelSpec
from pumice_samplers.select import Greedy
from pumice_server.command.serving import load_process
from pumice_server.models import model_loading, model_service, served_models
from pumice_server.models.served_model import FOREVER
from pumice_server.models.served_models import Models
from pumice_server.protocols.ollama.chat import keep_alive
from pumice_server.settings import Settings
from server_thread import Serving, serving
from waiting import PATIENCE, hang, wait_until

OPTIONS = {"backend": "numpy", "kv_type": "f32", "config": {"chat_template": "plain"}}
ENDLESS = {"prompt": "a", "max_tokens": 100_000, "ignore_eos": True, "stream": True}


@pytest.fixture(scope="module")
def specs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return [ModelSpec([name], str(tiny_llama(folder / f"{name}.gguf")), OPTIONS) for name in ("one", "two", "three")]


@pytest.fixture(scope="module")
def two(specs):
    """A server of three models with room for one."""
    with serving(*specs, max_models=1, context_shift=True) as server:
        yield server


@pytest.fixture
def one(specs):
    """A server of its own for an engine that dies: after several deaths it waits."""
    with serving(specs[0], context_shift=True) as server:
        yield server


def complete(server: Serving, model: str, **body) -> httpx2.Response:
    return server.client.post("/v1/completions", json={"model": model, "prompt": "a", "max_tokens": 3, **body})


def states(server: Serving) -> dict[str, str]:
    return {each["id"]: each["status"]["value"] for each in server.client.get("/v1/models").json()["data"]}


def pid_of(server: Serving, name: str) -> int:
    return server.models.known(name).service.model.engine.link.pid


def gone(pid: int) -> bool:
    return not os.path.exists(f"/proc/{pid}")


def test_a_model_is_loaded_when_asked_for_and_makes_room_for_another(two):
    assert complete(two, "one").json()["model"] == "one"
    assert states(two) == {"one": "loaded", "two": "unloaded", "three": "unloaded"}
    first = pid_of(two, "one")
    assert complete(two, "two:latest").json()["model"] == "two"
    assert states(two) == {"one": "unloaded", "two": "loaded", "three": "unloaded"}
    wait_until(lambda: gone(first))
    assert complete(two, "four").status_code == 404
    assert "there is no model 'four'; served: one, two, three" in complete(two, "four").text


def test_description_of_a_model_that_is_not_loaded(two):
    shown = two.client.post("/api/show", json={"model": "three"}).json()
    details = {"parent_model": "", "format": "gguf", "family": "llama", "families": ["llama"]}
    assert shown["details"].items() >= (details | {"quantization_level": "F32"}).items()
    assert shown["model_info"]["llama.block_count"] == 2
    tags = {each["name"]: each for each in two.client.get("/api/tags").json()["models"]}
    path = two.models.known("three").spec.path
    assert tags["three"]["size"] == os.path.getsize(path)
    assert tags["three"]["digest"] == tags["one"]["digest"] != ""  # the same outline
    assert states(two)["three"] == "unloaded"


def test_an_engine_that_is_killed_ends_its_streams_and_is_started_again(one):
    complete(one, "one")
    pid = pid_of(one, "one")
    with one.client.stream("POST", "/v1/completions", json={"model": "one", **ENDLESS}) as response:
        lines = response.iter_lines()
        next(lines)
        os.kill(pid, signal.SIGKILL)
        last = [line for line in lines if line][-1]
    error = json.loads(last.removeprefix("data: "))["error"]
    assert "the engine's process was ended by SIGKILL" in error["message"]
    assert error["code"] == 503
    wait_until(lambda: gone(pid))
    assert complete(one, "one").status_code == 200
    assert 'pumice_engine_crashes_total{model="one"} 1.0' in one.client.get("/metrics").text


def test_an_engine_that_hangs_is_noticed_killed_and_started_again(specs, monkeypatch):
    monkeypatch.setattr(model_service, "BEAT_SECONDS", 0.5)
    monkeypatch.setattr(served_models, "_STALL_SECONDS", float("inf"))  # no patient check may be under way below
    with serving(specs[0]) as server:
        assert complete(server, "one").status_code == 200
        pid = pid_of(server, "one")
        hang(pid)
        statuses = [server.client.get(path).status_code for path in ("/livez", "/health", "/readyz")]
        assert statuses == [200, 503, 503]
        with monkeypatch.context() as hasty:
            hasty.setattr(served_models, "_STALL_SECONDS", 1.0)
            wait_until(lambda: gone(pid))
        wait_until(lambda: server.client.get("/health").status_code == 200)
        assert complete(server, "one").status_code == 200


def test_load_and_unload(two):
    post = two.client.post
    assert post("/models/load", json={"model": "three"}).json() == {"success": True}
    wait_until(lambda: states(two)["three"] == "loaded")
    assert post("/models/unload", json={"model": "three"}).json() == {"success": True}
    assert states(two)["three"] == "unloaded"
    assert post("/models/unload", json={"model": "three"}).status_code == 400
    assert post("/models/load", json={"model": "four"}).status_code == 404
    assert two.client.get("/props").json()["role"] == "router"
    assert two.client.get("/props?model=one").json()["model_alias"] == "one"


@pytest.mark.parametrize("action", ["load", "unload"])
def test_a_single_model_is_loaded_and_unloaded_by_its_own_name_alone(one, action):
    assert complete(one, "any").status_code == 200
    response = one.client.post(f"/models/{action}", json={"model": "any"})
    assert (response.status_code, "'any'" in response.json()["error"]["message"]) == (404, True)
    assert states(one) == {"one": "loaded"}


def test_ollama_learns_what_gpus_hold(one, monkeypatch):
    read, device = pumice.Model.facts.fget, DeviceFacts("vulkan0", True, {"ffn": 5}, [0])
    monkeypatch.setattr(pumice.Model, "facts", property(lambda model: replace(read(model), devices=[device])))
    assert complete(one, "any").status_code == 200
    (held,) = one.client.get("/api/ps").json()["models"]
    assert held["size"] > held["size_vram"] == 5
    assert held["expires_at"] > "2100", "never: a time that has passed means that the model is stopping"


def test_ollamas_keep_alive(two):
    body = {"model": "one", "prompt": "a", "stream": False, "raw": True, "options": {"num_predict": 2}}
    assert two.client.post("/api/generate", json={**body, "keep_alive": "5m"}).status_code == 200
    (held,) = two.client.get("/api/ps").json()["models"]
    assert held["name"] == "one"
    assert held["expires_at"] > "2020"
    assert two.client.post("/api/generate", json={"model": "one", "keep_alive": 0}).json()["done_reason"] == "unload"
    wait_until(lambda: two.client.get("/api/ps").json() == {"models": []})
    asleep = two.client.get("/props?model=one").json()  # which loads nothing
    assert (asleep["is_sleeping"], asleep["model_alias"], asleep["total_slots"]) == (True, "one", 4)
    assert two.client.get("/api/ps").json() == {"models": []}


@pytest.mark.parametrize("fails", [False, True])
def test_a_look_at_a_model_that_leaves_memory_does_not_load_it(specs, monkeypatch, fails):
    """Its properties take a moment in which it is neither loaded nor asleep; without them it sleeps, too."""
    leaving, looked = threading.Event(), threading.Event()

    def last_properties(*arguments):
        leaving.set()
        assert looked.wait(PATIENCE)
        if fails:
            raise pumice.UnavailableError("no worker")
        return properties(*arguments)

    properties = model_loading._last_properties
    monkeypatch.setattr(model_loading, "_last_properties", last_properties)
    with serving(specs[0]) as server, ThreadPoolExecutor() as pool:
        assert complete(server, "one").status_code == 200
        unloaded = pool.submit(server.client.post, "/models/unload", json={"model": "one"})
        assert leaving.wait(PATIENCE)
        look = pool.submit(server.client.get, "/props?model=one")
        assert server.client.get("/health").status_code == 200
        looked.set()
        assert unloaded.result().status_code == 200
        assert look.result().json()["is_sleeping"] is True
        assert states(server) == {"one": "unloaded"}
        assert server.client.get("/health").status_code == 200


@pytest.mark.parametrize(
    ("given", "seconds"), [(None, None), (3, 3.0), ("5m", 300.0), ("1h30m", 5400.0), (-1, FOREVER), ("-1m", FOREVER)]
)
def test_durations(given, seconds):
    assert keep_alive(given) == seconds


@pytest.mark.parametrize("given", ["5", "m", "5 m", "1e9h", "1" * 20 + "s"])
def test_invalid_durations(given):
    with pytest.raises(Exception, match="keep_alive"):
        keep_alive(given)


def test_a_model_that_cannot_be_loaded(specs, tmp_path):
    (tmp_path / "bad.gguf").write_bytes(b"GGUF")
    with serving(specs[0], ModelSpec(["bad"], str(tmp_path / "bad.gguf"), OPTIONS)) as server:
        first = complete(server, "bad")
        assert (first.status_code, first.json()["error"]["message"].partition(":")[0]) == (500, "bad.gguf")
        assert states(server)["bad"] == "failed"
        answers = (complete(server, "bad") for _ in range(10))
        assert next(answers).status_code == 500, "tried again at once"
        again = next(answer for answer in answers if answer.status_code != 500)  # after 1 second, 2, 4, ...
        assert (again.status_code, str(tmp_path) in again.text) == (503, False)
        assert re.search(r"the next attempt is in \d+ s\b", again.text)
        loads = (server.client.post("/models/load", json={"model": "bad"}) for _ in range(10))
        refused = next(answer for answer in loads if answer.status_code != 200)
        assert (refused.status_code, "Retry-After" in refused.headers) == (503, True)
        assert re.search(r"the next attempt is in \d+ s\b", refused.text)
        assert complete(server, "one").status_code == 200


def test_a_sampler_that_two_plugins_claim_is_an_error_of_the_load(specs):
    plugins = [passed("samplers", name, greedy=Greedy) for name in ("first", "second")]
    models = Models(specs[:1], lambda spec, *_: pumice.load(spec.path, plugins=plugins, **OPTIONS), Settings())

    async def load() -> None:
        async with models.using(models.single):
            pass

    with pytest.raises(pumice.PluginError, match="'first' and 'second' both register the sampler 'greedy'"):
        asyncio.run(load())


def test_a_request_that_comes_while_its_model_is_unloaded_loads_it_again(one, monkeypatch):
    begun, go, answers = threading.Event(), threading.Event(), []

    def slow(*_):
        begun.set()
        assert go.wait(PATIENCE)
        return {}

    assert complete(one, "one").status_code == 200
    before = pid_of(one, "one")
    monkeypatch.setattr(model_loading, "properties", slow)
    body = {"model": "one"}
    unloading = threading.Thread(target=lambda: answers.append(one.client.post("/models/unload", json=body)))
    unloading.start()
    assert begun.wait(PATIENCE)
    coming = threading.Thread(target=lambda: answers.append(complete(one, "one")))
    coming.start()
    wait_until(lambda: one.models.find("one").n_waiting)
    assert states(one) == {"one": "unloaded"}
    go.set()
    for thread in (unloading, coming):
        thread.join(PATIENCE)
    assert [answer.status_code for answer in answers] == [200, 200]
    assert pid_of(one, "one") != before


def test_an_engine_that_dies_right_after_its_load_is_loaded_again(specs, monkeypatch):
    """Another request may notice that before the one that waits for the load."""
    deaths = ["first"]

    async def use() -> str:
        served = served_models.Models(specs[:1], load_process, Settings(), {})
        (served_model,) = served.served_models

        def die() -> None:
            if deaths and deaths.pop():
                model = served_model.service.model
                model.engine.kill()
                wait_until(lambda: model.engine.error)
                served.load(served_model)

        monkeypatch.setattr(model_loading, "_freeze_loaded", die)
        async with served.using(served_model):
            state = served_model.state
        await served.close()
        return state

    assert asyncio.run(use()) == "busy"


def test_a_model_falls_asleep_although_it_is_asked_about(specs):
    with serving(specs[0], keep_alive=1.0) as server:
        assert complete(server, "one").status_code == 200
        wait_until(lambda: server.client.get("/props").json()["is_sleeping"])
        assert server.client.get("/health").json() == {"status": "ok"}
        assert server.client.get("/metrics?names=llamacpp").status_code == 200
        assert states(server) == {"one": "unloaded"}
        assert complete(server, "one").status_code == 200


def test_a_server_that_stops_loads_no_model(specs):
    with serving(*specs[:2]) as server:
        assert complete(server, "one").status_code == 200
        server.models.drain(PATIENCE)
        answer = server.client.post("/models/load", json={"model": "two"})
        assert (answer.status_code, answer.json()["error"]["message"]) == (503, "the server is stopping")
        assert server.client.post("/models/load", json={"model": "one"}).json() == {"success": True}, "it is loaded"
        assert states(server) == {"one": "loaded", "two": "unloaded"}
