"""Ollama's own client against the server."""

import ollama
import pytest

PROMPT = "Once upon a time"
CHAT = [{"role": "user", "content": PROMPT}]
GREEDY = {"temperature": 0, "num_predict": 12}


def test_names_with_defaults_of_their_own(server):
    client = ollama.Client(host=server.url)
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
    expected = server.model.chat(CHAT, temperature=0, max_tokens=12).message.content
    assert client.chat(model="demo", messages=CHAT, options=GREEDY).message.content == expected

    text = f"FROM demo\nSYSTEM {pirate}\nPARAMETER temperature 0\nPARAMETER num_predict 7\nMESSAGE user {PROMPT}"
    server.client.post("/api/create", json={"model": "corsair", "modelfile": text, "stream": False}).raise_for_status()
    assert client.chat(model="corsair", messages=CHAT).message.content == said.message.content
    client.delete("corsair")
    shown = client.show("pirate")
    parameters = dict(line.split(None, 1) for line in shown.parameters.splitlines())
    assert parameters == {"num_predict": "7", "temperature": "0.0"}
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
        (lambda: client.copy("demo", "a fox"), 400),
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
