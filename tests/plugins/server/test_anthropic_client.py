"""Anthropic's own client against the server."""

from collections.abc import Iterator

import pytest

from imported_late import Late
from pumice_server.protocols.anthropic.bodies import AnthropicMessagesBody
from pumice_server.protocols.anthropic.request import read_messages

anthropic = Late("anthropic")

CHAT = [{"role": "user", "content": "Once upon a time"}]
GREEDY = {"model": "demo", "max_tokens": 12, "extra_body": {"temperature": 0}}


@pytest.fixture(scope="module")
def client(server) -> "Iterator[anthropic.Anthropic]":
    with anthropic.Anthropic(base_url=server.url, api_key="unused", max_retries=0) as client:
        yield client


def test_a_stop_sequence(client, server):
    expected = server.model.chat(CHAT, temperature=0, max_tokens=12)
    word = expected.message.content.split()[2]
    answer = client.messages.create(messages=CHAT, stop_sequences=[word], **GREEDY)
    assert (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", word)
    assert answer.content[0].text == expected.message.content.partition(word)[0]


def messages_of(**body):
    return read_messages(AnthropicMessagesBody.of(body))


def test_blocks_become_messages():
    result = {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "2"}]}
    called = {"type": "tool_use", "id": "1", "name": "add", "input": {"x": 1}}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": ""}, called]},
        {"role": "user", "content": [result]},
    ]
    call = {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"x": 1}'}}
    assert messages_of(messages=messages, system=[{"type": "text", "text": "s"}]) == [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "a\nb"},
        {"role": "assistant", "content": "", "reasoning": "hm", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "2"},
    ]


def test_documents_of_text_and_later_system_messages():
    text = {"type": "text", "media_type": "text/plain", "data": "Roses are red."}
    blocks = {"type": "content", "content": [{"type": "text", "text": "Violets"}, {"type": "text", "text": "too."}]}
    documents = [{"type": "document", "title": "Poem", "source": text}, {"type": "document", "source": blocks}]
    result = {"type": "tool_result", "tool_use_id": "1", "content": documents}
    given = [
        {"role": "user", "content": [*documents, {"type": "text", "text": "Go on."}]},
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [result]},
    ]
    poem = "Poem\nRoses are red.\nViolets\ntoo."
    assert messages_of(messages=given) == [
        {"role": "user", "content": f"{poem}\nGo on."},
        {"role": "system", "content": "Be brief."},
        {"role": "tool", "tool_call_id": "1", "content": poem},
    ]


def with_block(block):
    return {"messages": [{"role": "user", "content": [block]}]}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"messages": []}, "messages must be a list of 1 to"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "must be user, assistant or system"),
        (with_block({"type": "image", "source": {}}), "the part has no image"),
        (with_block({"type": "document", "source": {"type": "url", "url": "x"}}), "only text documents .*, not 'url'"),
        (with_block({"type": "search_result", "source": 5}), "source: expected text or a list of blocks"),
        ({"tool_choice": {"type": "tool"}}, "tool_choice"),
        ({"output_config": {"format": {"type": "text"}}}, "expected the type json_schema"),
    ],
)
def test_errors_have_anthropics_form(client, options, message):
    with pytest.raises(anthropic.BadRequestError, match=message) as caught:
        client.messages.create(**{**GREEDY, "messages": CHAT, **options})
    assert caught.value.body["type"] == "error"
    assert caught.value.body["error"]["type"] == "invalid_request_error"
    assert caught.value.body["request_id"] == caught.value.request_id
