"""OpenAI's responses, by OpenAI's own client: items, events, and chats that the server keeps."""

import json

import pytest

from imported_late import Late
from pumice_server.protocols.openai.response_store import Kept, ResponseStore
from pumice_server.protocols.openai.responses_request import read_input
from server_thread import running

openai = Late("openai")

PROMPT = "Once upon a time"
CHAT = [{"role": "user", "content": PROMPT}]
GREEDY = {"model": "demo", "temperature": 0, "max_output_tokens": 12}


def test_a_response_follows_another(client, server):
    """The chat before is the server's to keep; instructions are not of the chat."""
    first = client.responses.create(input=PROMPT, instructions="Be brief.", **GREEDY)
    second = client.responses.create(input="And then?", previous_response_id=first.id, **GREEDY)
    turns = [*CHAT, {"role": "assistant", "content": first.output_text}, {"role": "user", "content": "And then?"}]
    assert second.output_text == server.model.chat(turns, temperature=0, max_tokens=12).message.content
    assert client.responses.retrieve(second.id).output_text == second.output_text
    client.responses.delete(second.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(second.id)


def test_clients_do_not_see_each_others(model):
    with running(model, keys=["one", "two"]) as server:

        def create(key: str, **body):
            headers = {"Authorization": f"Bearer {key}"}
            return server.client.post("/v1/responses", json={"input": "a", **GREEDY, **body}, headers=headers)

        mine = create("one").json()["id"]
        assert create("one", previous_response_id=mine).status_code == 200
        assert create("two", previous_response_id=mine).status_code == 404
        assert server.client.get(f"/v1/responses/{mine}", headers={"X-Api-Key": "two"}).status_code == 404


def test_items_become_messages():
    call = {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 1}'}
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "Add"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
        call,
        {**call, "call_id": "c2"},
        {"type": "function_call_output", "call_id": "c1", "output": "2"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Two."}]},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "unfinished"}]},
    ]
    function = {"name": "add", "arguments": '{"a": 1}'}
    calls = [{"id": id, "type": "function", "function": function} for id in ("c1", "c2")]
    assert read_input(items) == [
        {"role": "user", "content": "Add"},
        {"role": "assistant", "content": "", "reasoning": "Hm.", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c1", "content": "2"},
        {"role": "assistant", "content": "Two."},
    ]


@pytest.mark.parametrize("stream", [False, True])
def test_the_item_that_a_limit_cuts_is_incomplete(server, stream):
    def item(**body):
        response = server.client.post("/v1/responses", json={"input": PROMPT, "stream": stream, **body})
        if not stream:
            return response.json()["status"], response.json()["output"][-1]["status"]
        events = [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: {")]
        done = [event for event in events if event["type"] == "response.output_item.done"]
        return events[-1]["response"]["status"], done[-1]["item"]["status"]

    assert item(max_output_tokens=3) == ("incomplete", "incomplete")
    assert item(max_output_tokens=300, choices=["yes", "no"]) == ("completed", "completed")


def test_items_are_referred_to_by_their_ids(client, server):
    first = client.responses.create(input=PROMPT, **GREEDY)
    item = first.output[-1].to_dict()
    whole = client.responses.create(input=[*CHAT, item, *CHAT], **GREEDY)
    for reference in ({"type": "item_reference", "id": item["id"]}, {"id": item["id"]}):
        again = client.responses.create(input=[*CHAT, reference, *CHAT], **GREEDY)
        assert (again.output_text, again.usage.input_tokens) == (whole.output_text, whole.usage.input_tokens)
        body = {"input": [*CHAT, reference, *CHAT]}
        counted = server.client.post("/v1/responses/input_tokens", json=body).json()
        assert counted["input_tokens"] == whole.usage.input_tokens
    client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError, match=r"input\[1\]\.id: no item 'msg_"):
        client.responses.create(input=[*CHAT, reference, *CHAT], **GREEDY)


def test_the_oldest_are_forgotten():
    store = ResponseStore(max_bytes=1000)
    for i in range(30):
        store.keep(str(i), Kept.of("me", [{"role": "user", "content": "x" * 100}], {"id": str(i), "output": []}, []))
    assert store.get("29", "me").messages
    with pytest.raises(Exception, match="or was dropped"):
        store.get("0", "me")
    assert store._size == sum(len(kept.messages) + len(kept.response) for kept in store._kept.values()) <= 1000
    assert all(type(part) is bytes for kept in store._kept.values() for part in (kept.messages, kept.response))
    for i in list(store._kept):
        store.delete(i, "me")
    assert (store._size, len(store._kept)) == (0, 0)


def test_items_of_another_key_are_not_found():
    store = ResponseStore()
    store.keep("r1", Kept.of("me", [], {"output": [{"id": "i1", "type": "message"}]}, ["i1"]))
    found = store.with_items([{"id": "i1"}, {"role": "user"}], "me")
    assert found == [{"id": "i1", "type": "message"}, {"role": "user"}]
    for owner, id in (("you", "i1"), ("me", "i2"), ("me", 7)):
        with pytest.raises(Exception, match=r"input\[0\]\.id: no item"):
            store.with_items([{"type": "item_reference", "id": id}], owner)


def test_refusals_are_texts_of_the_assistant(server):
    def rendered(**answer):
        chat = [*CHAT, {"role": "assistant", **answer}, *CHAT]
        return server.client.post("/apply-template", json={"messages": chat}).json()

    content = [{"type": "refusal", "refusal": "No."}]
    assert rendered(content=content) == rendered(content=None, refusal="No.") == rendered(content="No.")
    given = {"input": [*CHAT, {"role": "assistant", "content": content}, *CHAT], "max_output_tokens": 1}
    assert server.client.post("/v1/responses", json=given).status_code == 200
