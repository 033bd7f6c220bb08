"""``pumice serve --grammar`` and ``--json-schema``: the form of texts for requests that say none."""

import json

import pytest
from click.testing import CliRunner

from pumice_server.command.serve import command
from server_thread import running

USER = [{"role": "user", "content": "Hi"}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}


@pytest.fixture(scope="module")
def client(model):
    with running(model, output={"grammar": 'root ::= "yes" | "no"'}) as server:
        yield server.client


def test_requests_take_the_servers_grammar(client):
    for path, body in (
        ("/v1/completions", {"prompt": "Once"}),
        ("/completion", {"prompt": "Once"}),
        ("/v1/chat/completions", {"messages": USER}),
        ("/api/chat", {"messages": USER, "stream": False}),
        ("/v1/messages", {"messages": USER, "max_tokens": 5}),
    ):
        answer = client.post(path, json={"model": "demo", **body})
        assert answer.status_code == 200, answer.text
        assert '"yes"' in answer.text or '"no"' in answer.text, (path, answer.text)


def test_requests_that_say_a_form_take_theirs(client):
    def text(**body) -> str:
        answer = client.post("/v1/chat/completions", json={"messages": USER, "max_tokens": 9, **body}).json()
        return answer["choices"][0]["message"]["content"]

    assert text(grammar='root ::= "maybe"') == "maybe"
    assert json.loads(text(response_format={"type": "json_schema", "json_schema": {"schema": {"const": 3}}})) == 3
    assert text(response_format={"type": "text"}) not in ("yes", "no")
    assert text(tools=[TOOL]) not in ("yes", "no")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--grammar", "x", "--json-schema", "{}"], "give only one of --grammar, --json-schema"),
        (["--grammar-file", "/no/such"], "cannot read the grammar: /no/such"),
    ],
)
def test_wrong_options_are_refused(arguments, problem):
    assert problem in CliRunner().invoke(command, arguments).output
