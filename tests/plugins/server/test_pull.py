"""Ollama's pull: a model that a client names is fetched, if the server allows that, and served from then on."""

import ollama
import pytest

import hub_server
from gguf_files import tiny_llama
from pumice_server.entry import Spec
from server_thread import running, serving

OPTIONS = {"backend": "numpy", "kv_type": "f32", "config": {"chat_template": "plain"}}


@pytest.fixture
def hub(tmp_path, monkeypatch):
    with hub_server.serve() as hub:
        hub_server.use(hub, tmp_path, monkeypatch)
        path = tiny_llama(tmp_path / "tiny.gguf")
        hub.repositories["a/b"] = hub_server.Repository({"tiny-F32.gguf": path.read_bytes()})
        yield hub


def test_a_model_is_pulled_and_served(hub, tmp_path):
    spec = Spec(["first"], str(tmp_path / "tiny.gguf"), OPTIONS)
    with serving(spec, Spec(["second"], "absent.gguf", OPTIONS), allow_pull=True) as server:
        client = ollama.Client(host=server.url)
        lines = list(client.pull("hf.co/a/b", stream=True))
        assert lines[0].status == "pulling manifest"
        assert lines[-1].status == "success"
        assert any(line.total and line.completed == line.total for line in lines)
        assert [each.model for each in client.list().models] == ["first", "second", "hf.co/a/b"]
        answer = client.generate("hf.co/a/b", "a", raw=True, options={"num_predict": 3})
        assert answer.eval_count == 3
        assert client.pull("hf.co/a/b").status == "success"
        with pytest.raises(ollama.ResponseError, match="c/d"):
            client.pull("hf.co/c/d")


@pytest.mark.parametrize("name", ["/etc/passwd", "../x", "~/x", "", "a b", "file:///etc/passwd", "http://127.0.0.1/x"])
def test_names_that_lead_elsewhere(model, name):
    with running(model, allow_pull=True) as server:
        assert server.client.post("/api/pull", json={"model": name}).status_code == 400


def test_nothing_is_fetched_unless_that_is_allowed(server):
    assert server.client.post("/api/pull", json={"model": "hf.co/a/b"}).status_code == 403
    assert server.client.post("/api/pull", json={"model": "demo"}).status_code == 200
    for path in ("create", "copy", "push", "blobs/sha256:0"):
        assert server.client.post(f"/api/{path}", json={}).status_code == 501
