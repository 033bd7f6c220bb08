"""Identifiers of tool calls are unique in an answer and in its chat, whatever the model writes."""

import json

from hypothesis import given
from hypothesis import strategies as st

from pumice.chat.answer import AnswerBuilder
from pumice.chat.formats import ChatFormat
from pumice.chat.parser import ChatParser

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
FORMAT = ChatFormat("hermes-like", calls=("<call>{json}</call>",))
IDS = st.lists(st.sampled_from(["", "1", "2", "functions.f:0"]), max_size=6)


@given(used=IDS, written=IDS, n_chunk=st.integers(1, 40))
def test_ids_are_unique_and_the_models_own_where_they_are(used, written, n_chunk):
    builder = AnswerBuilder(ChatParser(FORMAT, [TOOL]), used_ids=used)
    calls = [{"name": "f", "arguments": {}, **({"id": id} if id else {})} for id in written]
    text = "".join(f"<call>{json.dumps(call)}</call>" for call in calls)
    deltas = [builder.take(text[i : i + n_chunk]) for i in range(0, len(text), n_chunk)]
    deltas.append(builder.finish("stop", 1, 0))
    ids = [call.id for call in builder.completion().message.tool_calls]
    assert [call.id for delta in deltas for call in delta.tool_calls] == ids
    assert len(ids) == len(written) == len({*ids})
    assert all(ids)
    assert not set(ids) & set(used)
    for i, id in enumerate(written):
        assert (ids[i] == id) == (bool(id) and id not in used and id not in written[:i])


def test_ids_of_earlier_turns_are_not_repeated(model):
    script = [f"<tool_call>\n{json.dumps({'name': 'f', 'arguments': {}, 'id': 'call_1'})}\n</tool_call>"]
    messages = [{"role": "user", "content": "Hi"}]
    ids = []
    for _ in range(3):
        message = model.chat(messages, tools=[TOOL], script=script, max_tokens=200).message
        ids += [call.id for call in message.tool_calls]
        messages += [message, {"role": "tool", "tool_call_id": ids[-1], "content": "done"}]
    assert len(set(ids)) == 3
    assert ids[0] == "call_1"
