"""LoRA adapters of a served model."""

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import pumice
from adapters import write_adapter
from control_vectors import write_control_vector
from gguf_files import tiny_llama
from pumice.gguf import GGUFFile
from pumice.plugin.unstable import ModelSpec
from server_thread import Running, running, serving
from tiny_models import TinyModel

PROMPT = "Once upon a time"
GREEDY = {"prompt": PROMPT, "temperature": 0, "max_tokens": 12}
NAMES = [f"blk.{i}.attn_{part}.weight" for i in range(2) for part in ("q", "v")]


def demo_shapes() -> TinyModel:
    with GGUFFile.open(pumice.demo_model_path()) as file:
        return TinyModel(file.architecture, {}, {name: tensor.shape for name, tensor in file.tensors.items()})


@pytest.fixture(scope="module")
def adapted(tmp_path_factory) -> Iterator[Running]:
    """The demo model with two adapters, the first half as strong as it was trained."""
    folder = tmp_path_factory.mktemp("adapters")
    demo = demo_shapes()
    files = {name: str(write_adapter(folder / f"{name}.gguf", demo, NAMES, seed=i)) for i, name in enumerate("ab")}
    loaded = pumice.load(config={"adapters": files, "chat_template": "plain"}, n_parallel=4)
    with loaded as model, running(model) as server:
        server.application.state.models.served_models[0].scales["a"] = 0.5
        yield server


@pytest.fixture(scope="module")
def texts(adapted):
    """Return the texts of the model with adapters of these scales."""
    cases = [{"a": 0.5, "b": 1.0}, {}, {"a": 1.0}, {"b": 1.0}, {"b": 0.25}]
    found = {str(each): adapted.model.generate(**GREEDY, adapters=each).text for each in cases}
    assert len(set(found.values())) == len(cases)
    return lambda **scales: found[str(scales)]


def text(adapted, **fields) -> str:
    response = adapted.client.post("/v1/completions", json=GREEDY | fields)
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]["text"]


def test_adapters_are_as_strong_as_a_request_says(adapted, texts):
    assert text(adapted) == texts(a=0.5, b=1.0)
    assert text(adapted, lora=[]) == texts()  # those that are not listed have scale 0
    assert text(adapted, lora=[{"id": 1, "scale": 0.25}]) == texts(b=0.25)
    assert text(adapted, lora=[{"id": 0}]) == texts()


def test_a_scale_that_overflows_fails_its_request_alone(adapted, texts):
    """The logits of one sequence are no numbers; those of the others in its steps are."""

    def status(scale):
        body = {**GREEDY, "max_tokens": 40, "ignore_eos": True, "lora": [{"id": 1, "scale": scale}]}
        response = adapted.client.post("/v1/completions", json=body)
        if response.status_code == 500:
            return 500, response.json()["error"]["message"].partition(";")[0]
        return response.status_code, response.json()["choices"][0]["text"][: len(texts(b=0.25))]

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(status, [0.25, 1e6, 0.25, 1e6, 1e6, 0.25]))
    right, wrong = (200, texts(b=0.25)), (500, "backend 'cpu' (plugin cpu): the model's logits contain NaN")
    assert found == [right, wrong, right, wrong, wrong, right]


def test_an_adapter_is_a_model_by_its_own_name(adapted, texts):
    assert text(adapted, model="a") == texts(a=1.0)
    assert text(adapted, model="demo:b") == texts(b=1.0)
    assert text(adapted, model="b", lora=[{"id": 0, "scale": 1}]) == texts(a=1.0)
    answer = adapted.client.post("/v1/completions", json=GREEDY | {"model": "a"}).json()
    assert answer["model"] == "a"
    told = adapted.client.get("/v1/models").json()["data"]
    assert [(each["id"], each["parent"]) for each in told] == [("demo", None), ("a", "demo"), ("b", "demo")]
    assert adapted.client.get("/v1/models/demo:a").json()["parent"] == "demo"


def test_configured_adapters_load_their_model(tmp_path):
    """Of two models, by the adapters' names; the name of a model is never that of an adapter."""
    demo = demo_shapes()
    files = {name: str(write_adapter(tmp_path / f"{name}.gguf", demo, NAMES)) for name in ("law", "other")}
    files["tone"] = str(write_control_vector(tmp_path / "tone.gguf", [np.ones(256, np.float32)]))
    options = {"config": {"chat_template": "plain"}}
    specs = [
        ModelSpec(["demo"], str(pumice.demo_model_path()), {"config": options["config"] | {"adapters": files}}),
        ModelSpec(["other"], str(tiny_llama(tmp_path / "tiny.gguf")), options),
    ]
    with serving(*specs) as server:

        def status(name: str) -> int:
            return server.client.post("/v1/completions", json=GREEDY | {"model": name, "max_tokens": 1}).status_code

        listed = server.client.get("/v1/models").json()["data"]
        assert [each["id"] for each in listed] == ["demo", "law", "demo:other", "other"]
        assert [server.client.get(f"/v1/models/{name}").json()["parent"] for name in ("law", "other")] == ["demo", None]
        assert status("tone") == 404
        assert status("other") == 200
        assert not server.models.served_models[0].service, "the model of an adapter with another model's name"
        assert [status(name) for name in ("law", "law:latest", "demo:other")] == [200, 200, 200]
        assert server.client.get("/v1/models").json()["data"][1]["status"] == {"value": "loaded"}


def test_scales_of_the_server(adapted, texts):
    path = "/lora-adapters"
    before = [{"id": 0, "path": "a.gguf", "scale": 0.5}, {"id": 1, "path": "b.gguf", "scale": 1.0}]
    assert adapted.client.get(path).json() == before
    try:
        assert adapted.client.post(path, json=[{"id": 1, "scale": 0.25}]).json() == {"success": True}
        assert [each["scale"] for each in adapted.client.get(path).json()] == [0.0, 0.25]
        assert text(adapted) == texts(b=0.25)
    finally:
        adapted.client.post(path, json=before)
    assert text(adapted) == texts(a=0.5, b=1.0)


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/v1/completions", GREEDY | {"lora": [{"scale": 1}]}, "lora[0].id must be an integer; it is missing"),
        ("/v1/completions", GREEDY | {"lora": [{"id": 2, "scale": 1}]}, "lora[0].id: no LoRA adapter has the id 2;"),
        ("/v1/completions", GREEDY | {"lora": [{"id": 0, "scale": 10**400}]}, "not valid JSON"),
        ("/lora-adapters", {}, "path must be text; it is missing"),
        ("/lora-adapters", "a", "the body must be a list or an object, not 'a'"),
        ("/lora-adapters", [{"id": 2}], "body[0].id: no LoRA adapter has the id 2;"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_wrong_scales(adapted, path, body, message):
    response = adapted.client.post(path, json=body)
    assert (response.status_code, message in response.json()["error"]["message"]) == (400, True), response.text


def test_adapters_in_a_completion(adapted):
    told = adapted.client.post("/completion", json=GREEDY | {"lora": [{"id": 1, "scale": 2}]}).json()
    assert told["generation_settings"]["lora"] == [{"id": 0, "scale": 0.0}, {"id": 1, "scale": 2.0}]


@pytest.fixture
def growing(tmp_path) -> Iterator[Running]:
    """The demo model without adapters, and a folder of some that clients may add."""
    folder = tmp_path / "adapters"
    folder.mkdir()
    demo = demo_shapes()
    for i, name in enumerate("ab"):
        write_adapter(folder / f"{name}.gguf", demo, NAMES, seed=i)
    shutil.copy(folder / "a.gguf", tmp_path / "outside.gguf")
    (folder / "link.gguf").symlink_to(tmp_path / "outside.gguf")
    (folder / "loop.gguf").symlink_to("loop.gguf")
    (folder / "broken.gguf").write_bytes(b"GGUF")
    with pumice.load(n_parallel=4) as model, running(model, adapter_folder=folder) as server:
        yield server


def change(server, **body):
    return server.client.post("/lora-adapters", json=body)


def remove(server, name):
    return server.client.delete("/lora-adapters", params={"name": name})


def test_clients_add_and_remove_adapters(growing, texts):
    plain = text(growing)
    assert change(growing, path="a.gguf", scale=0.5).json() == {"success": True}
    assert change(growing, path="b.gguf", name="second").json() == {"success": True}
    listed = [{"id": 0, "path": "a.gguf", "scale": 0.5}, {"id": 1, "path": "b.gguf", "scale": 1.0}]
    assert growing.client.get("/lora-adapters").json() == listed
    assert text(growing) == texts(a=0.5, b=1.0)
    assert text(growing, lora=[]) == plain == texts()
    assert text(growing, model="second") == texts(b=1.0)
    assert growing.client.post("/lora-adapters", json=[{"id": 1, "scale": 0.25}]).status_code == 200
    assert text(growing) == texts(b=0.25)
    assert remove(growing, "a").json() == {"success": True}
    assert text(growing) == texts(b=0.25)
    assert [each["id"] for each in growing.client.get("/v1/models").json()["data"]] == ["demo", "second"]
    assert remove(growing, "second").status_code == 200
    assert text(growing) == plain
    unknown = remove(growing, "second")
    assert (unknown.status_code, "no adapter 'second'; it has: none" in unknown.text) == (400, True)


def test_an_adapter_that_is_removed_while_it_is_used(growing, texts):
    assert change(growing, path="a.gguf").status_code == 200
    with ThreadPoolExecutor(1) as pool:
        using = pool.submit(text, growing, lora=[{"id": 0, "scale": 1}])
        while not (growing.model.engine.snapshot().n_running or using.done()):
            pass
        assert remove(growing, "a").status_code == 200
    assert using.result() == texts(a=1.0)


def test_adapters_outlive_a_reload(growing):
    assert change(growing, path="a.gguf", scale=0.5).status_code == 200
    (served,) = growing.application.state.models.served_models
    assert served.spec.options["config"]["adapters"]["a"]["file"].endswith("adapters/a.gguf")
    assert remove(growing, "a").status_code == 200
    assert served.spec.options["config"]["adapters"] == {}


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"path": "../outside.gguf"}, 404, "there is no adapter '../outside.gguf' in the folder of --lora-dir"),
        ({"path": "link.gguf"}, 404, "there is no adapter 'link.gguf'"),
        ({"path": "loop.gguf"}, 404, "there is no adapter 'loop.gguf'"),
        ({"path": "/etc/passwd"}, 404, "there is no adapter '/etc/passwd'"),
        ({"path": "missing.gguf"}, 404, "there is no adapter 'missing.gguf'"),
        ({"path": "."}, 404, "there is no adapter '.'"),
        ({"path": "a\0"}, 404, "there is no adapter"),
        ({"path": "broken.gguf"}, 400, "broken.gguf"),
        ({"path": "a.gguf", "name": "demo"}, 400, "'demo' is a model or an adapter of this server"),
        ({"path": "a.gguf", "layers": [1, 2]}, 400, "'layers' applies only to control vectors"),
        ({"path": "a.gguf", "layers": [1]}, 400, "should be the first and the last layer"),
        ({"path": "a.gguf", "scale": "much"}, 400, "scale must be a number"),
        ({"scale": 1}, 400, "path"),
    ],
)
def test_what_cannot_be_added(growing, texts, body, status, message):
    response = change(growing, **body)
    assert (response.status_code, message in response.json()["error"]["message"]) == (status, True), response.text
    assert "/adapters/" not in response.text
    assert growing.client.get("/lora-adapters").json() == []
    assert text(growing) == texts()


def test_a_server_without_a_folder_adds_nothing(adapted):
    assert (change(adapted, path="a.gguf").status_code, remove(adapted, "a").status_code) == (501, 501)
    assert "--lora-dir" in change(adapted, path="a.gguf").json()["error"]["message"]
