"""Hostile templates of files, and requests that are hostile to templates: each is refused, everybody else goes on."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from gguf_files import tiny_llama
from pumice.chat import BUILTIN
from pumice.chat.isolated import template_workers
from pumice.plugin.unstable import ModelSpec
from server_thread import serving
from waiting import PATIENCE, hang, wait_until

OPTIONS = {"backend": "numpy", "kv_type": "f32", "n_parallel": 2}
TEMPLATES = {
    "endless": "{{ messages[0].content * 10 ** 12 }}",
    "nested": "{{ " + " and ".join("a" * 50_000) + " }}",
    "chatml": BUILTIN["chatml"],
    "showing": "{{ x }}{{ chat_template }}{{ messages[0].content }}",
}
USER = {"role": "user", "content": "Hi"}
CHAT = {"messages": [USER], "max_tokens": 1}
KWARGS = ["/v1/chat/completions", "/v1/responses", "/v1/responses/input_tokens", "/apply-template"]
"""The endpoints that take template variables."""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Models by the names of their templates."""
    folder = tmp_path_factory.mktemp("models")
    specs = []
    for name, template in TEMPLATES.items():
        path = tiny_llama(folder / f"{name}.gguf", n_ctx=2048, more={"tokenizer.chat_template": template})
        specs.append(ModelSpec([name], str(path), OPTIONS))
    with serving(*specs) as server:
        yield server


def ask(server, path="/v1/chat/completions", model="chatml", **fields):
    body = {**CHAT, "input": [USER], "max_output_tokens": 1, "options": {"num_predict": 1}, "stream": False}
    body |= {"model": model, **fields}
    return server.client.post(path, json=body, timeout=PATIENCE)


@pytest.mark.parametrize(
    ("model", "status", "reason"),
    [("endless", 400, "rendering the chat template takes more than"), ("nested", 500, "it is nested too deeply")],
)
def test_a_template_that_takes_too_much(server, model, status, reason):
    for path in ("/v1/chat/completions", "/v1/responses", "/v1/messages", "/api/chat", "/apply-template"):
        answer = ask(server, path, model)
        assert (answer.status_code, reason in answer.text) == (status, True)
    assert server.client.get("/props", params={"model": model}).json()["chat_template_caps"] == {}
    assert server.client.post("/v1/completions", json={"model": model, "prompt": "a", "max_tokens": 1}).is_success
    assert ask(server).is_success
    assert server.client.get("/props", params={"model": "chatml"}).json()["chat_template_caps"]["supports_system_role"]


@pytest.mark.parametrize(
    ("message", "refusal"),
    [
        ({**USER, "extra": [[]] * 1_000_000}, "the body has more than 262144 opening brackets"),
        ({**USER, "extra": [[]] * 200_000}, "more than 100000 values"),
        ({**USER, "extra": "<" * 30_000_000 + "\U0001f600"}, "characters, but the limit is 16777216"),
    ],
)
def test_a_request_that_brings_too_much_is_refused_and_its_template_is_not(server, message, refusal):
    answer = ask(server, messages=[message])
    assert (answer.status_code, refusal in answer.text) == (400, True)
    assert ask(server).is_success


def test_a_worker_that_is_stopped_or_killed(server, monkeypatch):
    assert ask(server).is_success
    pool = template_workers().pool
    for worker in pool._workers:  # a slow machine does not end the stopped one before the others have answered
        monkeypatch.setattr(worker, "_limits", replace(worker._limits, cpu_seconds=3600, wall_seconds=3600.0))
    with ThreadPoolExecutor(1) as threads:
        hang(pool.pids[0])
        stopped = threads.submit(ask, server)
        wait_until(lambda: any(worker.busy for worker in pool._workers))
        for model in ("chatml", "showing", "chatml"):
            assert ask(server, model=model).is_success
        assert not stopped.done()
        os.kill(pool.pids[0], signal.SIGKILL)
        assert stopped.result(PATIENCE).is_success
    for pid in pool.pids:
        os.kill(pid, signal.SIGKILL)
    assert ask(server).is_success


@pytest.mark.parametrize("path", KWARGS)
def test_template_variables_are_bounded_and_none_of_the_templates_own(server, path):
    def refusal(**variables):
        answer = ask(server, path, "showing", chat_template_kwargs=variables)
        assert answer.status_code == 400
        return answer.json()["error"]["message"]

    assert ask(server, path, "showing", chat_template_kwargs={"x": [1, {"a": None}]}).is_success
    assert "65536" in refusal(x="y" * 70_000)
    assert "1000 values" in refusal(x=[[]] * 1_000)
    for name in ("messages", "tools", "bos_token", "eos_token", "add_generation_prompt", "documents"):
        assert f"template_variables: {name!r} is reserved" in refusal(**{name: "x"})


def test_no_protocol_takes_a_template(server):
    own = "{{ 'of a client' }}"
    answer = ask(server, "/apply-template", "showing", chat_template=own, chat_template_kwargs={"chat_template": own})
    assert answer.json()["prompt"] == own + "Hi"  # as a text like any
    assert "template is not supported" in ask(server, "/api/generate", "showing", prompt="a", template=own).text
