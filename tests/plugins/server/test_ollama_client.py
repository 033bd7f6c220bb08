"""Ollama's own client against the server."""

import json
from collections.abc import Iterator

import ollama
import pytest

PROMPT = "Once upon a time"
CHAT = [{"role": "user", "content": PROMPT}]
GREEDY = {"temperature": 0, "num_predict": 12}


@pytest.fixture(scope="module")
def client(server) -> Iterator[ollama.Client]:
    return ollama.Client(host=server.url)


@pytest.fixture(scope="module")
def expected(server):
    return server.model.chat(CHAT, temperature=0, max_tokens=12)


def test_a_chat(client, expected):
    answer = client.chat(model="demo", messages=CHAT, options=GREEDY)
    assert answer.message.content == expected.message.content
    assert answer.message.role == "assistant"
    assert answer.done
    assert answer.done_reason == "length"
    assert (answer.prompt_eval_count, answer.eval_count) == (expected.usage.prompt_tokens, 12)
    assert answer.total_duration >= answer.eval_duration > 0


def test_a_streamed_chat(client, expected):
    parts = list(client.chat(model="demo", messages=CHAT, options=GREEDY, stream=True))
    assert "".join(part.message.content for part in parts) == expected.message.content
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    assert parts[-1].eval_count == 12


@pytest.mark.parametrize("raw", [False, True])
def test_generate(client, server, expected, raw):
    text = server.model.generate(PROMPT, temperature=0, max_tokens=12).text if raw else expected.message.content
    assert client.generate(model="demo", prompt=PROMPT, raw=raw, options=GREEDY).response == text
    parts = list(client.generate(model="demo", prompt=PROMPT, raw=raw, options=GREEDY, stream=True))
    assert "".join(part.response for part in parts) == text
    assert parts[-1].done


def test_a_format(client):
    schema = {
        "type": "object",
        "properties": {"age": {"enum": [3, 4]}},
        "required": ["age"],
        "additionalProperties": False,
    }
    answer = client.chat(model="demo", messages=CHAT, format=schema, options={"num_predict": 60, "seed": 1})
    assert json.loads(answer.message.content)["age"] in (3, 4)


def test_models(client, server):
    assert [model.model for model in client.list().models] == ["demo"]
    assert client.ps().models[0].context_length == server.model.n_ctx
    shown = client.show("demo")
    assert shown.details.family == server.model.metadata["general.architecture"]
    assert shown.capabilities == ["completion"]
    assert server.client.get("/api/version").json()["version"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"messages": CHAT, "options": {"temperature": "hot"}}, "temperature must be a number"),
        ({"messages": CHAT, "options": 5}, "options must be an object"),
        ({"messages": [5]}, "messages[0] must be an object"),
        ({"messages": [{"role": "user", "content": "x", "images": ["AAAA"]}]}, "takes no images"),
        ({"messages": [{"role": "user", "content": 5, "images": ["AAAA"]}]}, "content: expected text or a list"),
        ({"messages": CHAT, "format": 7}, "format must be"),
    ],
)
def test_wrong_requests(client, body, message):
    response = client._client.post("/api/chat", json=body)
    assert response.status_code == 400
    assert message in response.json()["error"]


def test_an_error_of_the_client(client):
    with pytest.raises(ollama.ResponseError, match="n_ctx is 512") as caught:
        client.generate(model="demo", prompt="word " * 2000, raw=True)
    assert caught.value.status_code == 400


def test_names_with_defaults_of_their_own(client, server, expected):
    pirate = "Talk like a pirate."
    own = {"temperature": 0, "num_predict": 7}
    client.create(model="pirate", from_="demo", system=pirate, parameters=own, messages=CHAT)
    said = server.model.chat([{"role": "system", "content": pirate}, *CHAT, *CHAT], temperature=0, max_tokens=7)
    assert client.chat(model="pirate", messages=CHAT).message.content == said.message.content
    body = {"model": "pirate:latest", "messages": CHAT}
    answer = server.client.post("/v1/chat/completions", json=body).json()
    assert (answer["model"], answer["choices"][0]["message"]["content"]) == ("pirate:latest", said.message.content)
    other = [{"role": "system", "content": "Be brief."}]
    asked = server.model.chat([*other, *CHAT, *CHAT], temperature=0, max_tokens=3)
    answer = client.chat(model="pirate", messages=[*other, *CHAT], options={"num_predict": 3})
    assert answer.message.content == asked.message.content
    assert client.chat(model="demo", messages=CHAT, options=GREEDY).message.content == expected.message.content

    text = f"FROM demo\nSYSTEM {pirate}\nPARAMETER temperature 0\nPARAMETER num_predict 7\nMESSAGE user {PROMPT}"
    server.client.post("/api/create", json={"model": "corsair", "modelfile": text, "stream": False}).raise_for_status()
    assert client.chat(model="corsair", messages=CHAT).message.content == said.message.content
    client.delete("corsair")
    shown = client.show("pirate")
    assert dict(line.split(None, 1) for line in shown.parameters.splitlines()) == {
        "num_predict": "7",
        "temperature": "0.0",
    }
    assert (shown.modelinfo["general.architecture"], client.show("demo").modelfile) == ("llama", "")
    again = {"model": "again", "modelfile": shown.modelfile, "stream": False}
    server.client.post("/api/create", json=again).raise_for_status()
    assert client.chat(model="again", messages=CHAT).message.content == said.message.content
    client.delete("again")
    client.copy("pirate", "buccaneer")
    assert {"demo", "pirate", "buccaneer"} <= {model.model for model in client.list().models}
    client.delete("pirate")
    assert client.chat(model="buccaneer", messages=CHAT).message.content == said.message.content
    client.delete("buccaneer")

    def modelfile(text: str) -> None:
        answer = server.client.post("/api/create", json={"model": "x", "modelfile": text, "stream": False})
        if answer.is_error:
            raise ollama.ResponseError(answer.text, answer.status_code)

    for act, status in (
        (lambda: client.delete("pirate"), 404),
        (lambda: client.delete("demo"), 403),
        (lambda: client.copy("demo", "demo"), 409),
        (lambda: client.copy("hare", "fox"), 404),
        (lambda: client.create(model="x"), 400),
        (lambda: client.create(model="x", from_="demo", template="{{ .Prompt }}"), 400),
        (lambda: client.create(model="x", from_="demo", parameters={"image_data": [3]}), 400),
        (lambda: modelfile("FROM demo\nTEMPLATE chatml"), 400),
        (lambda: modelfile("FROM demo\nPARAMETER heat 1"), 400),
        (lambda: modelfile("SYSTEM Be brief."), 400),
        (lambda: client.push("demo"), 501),
    ):
        with pytest.raises(ollama.ResponseError) as error:
            act()
        assert error.value.status_code == status, error.value
