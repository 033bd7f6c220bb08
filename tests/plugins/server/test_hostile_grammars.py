"""Grammars, schemas and tools that would end their compiler: the request fails alone."""

import pytest

import pumice
from pumice.grammar import lark_limits
from pumice.plugin.unstable import ModelSpec
from server_thread import serving

USER = [{"role": "user", "content": "Once"}]
CHAT, COMPLETE = "/v1/chat/completions", "/v1/completions"


def chain(n):
    definitions = {f"d{i}": {"properties": {"a": {"$ref": f"#/$defs/d{i + 1}"}}} for i in range(n)}
    return {"$defs": {**definitions, f"d{n}": {"type": "null"}}, "$ref": "#/$defs/d0"}


def calling(schema):
    return {"messages": USER, "tools": [{"name": "f", "parameters": schema}], "tool_choice": "required"}


RULES = "root ::= r0\n" + "".join(f'r{i} ::= "a" r{i + 1}\n' for i in range(8000)) + 'r8000 ::= "b"'
LARK = "start: r0\n" + "".join(f'r{i}: "a" r{i + 1}\n' for i in range(10_000)) + 'r10000: "b"'
FORMAT = {"type": "json_schema", "json_schema": {"name": "a", "schema": chain(1000)}}


@pytest.fixture(scope="module")
def server():
    options = {"config": {"chat_template": "chatml"}, "n_ctx": 512}
    with serving(ModelSpec(["demo"], str(pumice.demo_model_path()), options)) as server:
        yield server


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        (CHAT, calling(chain(1000)), "tools: parameters of 'f': references are nested too deeply"),
        (CHAT, {"messages": USER, "response_format": FORMAT}, "json_schema: references are nested too deeply"),
        (COMPLETE, {"json_schema": chain(1000)}, "json_schema: references are nested too deeply"),
        (COMPLETE, {"grammar": RULES}, "grammar: 4097 rules are too many"),
        (COMPLETE, {"grammar": LARK}, "grammar: "),
        (COMPLETE, {"grammar": "start: X\nX: " + '"a"? ' * 40_000}, "grammar: rule 'X': 4097 elements"),
    ],
)
def test_the_request_fails_alone(path, body, message, server):
    answer = server.client.post(path, json={"max_tokens": 2, "prompt": "Once", **body})
    assert answer.status_code == 400
    assert message in answer.json()["error"]["message"]
    assert server.client.get("/health").status_code == 200


def test_a_compiler_that_crashes_is_neither_the_server_nor_an_engine(server, monkeypatch):
    monkeypatch.setattr(lark_limits, "check_lark", lambda text: None)
    answer = server.client.post(COMPLETE, json={"prompt": "Once", "grammar": LARK})
    assert answer.status_code == 400
    assert "compiling the grammar crashed" in answer.json()["error"]["message"]
    answer = server.client.post(COMPLETE, json={"prompt": "Once", "grammar": 'root ::= "yes"'})
    assert answer.json()["choices"][0]["text"] == "yes"
