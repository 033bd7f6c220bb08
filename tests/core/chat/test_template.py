"""Choosing a template, and what is done about what it cannot."""

import pytest

from family_templates import FAMILIES
from pumice.chat import FORMATS, Chat, ChatRequest
from pumice.chat.builtin import BUILTIN
from pumice.chat.template import ChatTemplate, ChatTemplates
from pumice.chat.traits import with_traits
from pumice.errors import ModelError, NoChatTemplateError, RequestError
from tokenizer_fixtures import small

SYSTEM, USER = {"role": "system", "content": "S"}, {"role": "user", "content": "U"}
KEY = "tokenizer.chat_template"
THINKS = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]<think>\n{% endif %}"
)


def get(metadata, chosen=None, request=None, for_tools=False):
    return ChatTemplates(metadata, chosen).source(request, for_tools=for_tools)


def test_the_files_template_is_used_and_its_variant_for_tools():
    metadata = {KEY: "{{ 'a' }}", f"{KEY}.tool_use": "{{ 'b' }}", f"{KEY}.rag": "{{ 'c' }}"}
    metadata[KEY + "s"] = ["tool_use", "rag"]
    assert get(metadata) == "{{ 'a' }}"
    assert get(metadata, for_tools=True) == "{{ 'b' }}"
    assert get(metadata, request="rag") == "{{ 'c' }}"
    assert get(metadata, "rag") == "{{ 'c' }}"
    assert get(metadata, "rag", "chatml") == BUILTIN["chatml"]
    assert get({}, "{{ messages }}") == "{{ messages }}"


def test_a_file_without_a_template_is_an_error_that_says_what_to_do():
    with pytest.raises(NoChatTemplateError, match=r'has no chat template: .* for example chat_template="chatml" '):
        get({})
    with pytest.raises(RequestError, match="unknown chat template 'chatlm'; did you mean"):
        get({}, "chatlm")
    with pytest.raises(ModelError, match="not valid Jinja"):
        prompt("{% if %}")


def test_a_system_message_begins_the_first_where_there_is_no_such_role():
    refuses = "{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}"
    source = "{% for m in messages %}" + refuses + "({{ m.content }}){% endfor %}"
    assert with_traits(ChatTemplate(source)).render([SYSTEM, USER]) == "(S\n\nU)"
    silent = "{% for m in messages if m.role != 'system' %}({{ m.content }}){% endfor %}"
    assert with_traits(ChatTemplate(silent)).render([SYSTEM, USER]) == "(S\n\nU)"
    chatml = with_traits(ChatTemplate(BUILTIN["chatml"]))
    assert chatml.render([{**SYSTEM, "role": "developer"}, USER]).startswith("<|im_start|>system")


LATE = {"role": "system", "content": "L"}
ANSWER = {"role": "assistant", "content": "A"}
ORDERS = [
    ([SYSTEM, USER, LATE], "[system]S[user]U\n\nL"),  # as Claude Code sends it
    ([{**SYSTEM, "role": "developer"}, SYSTEM, USER, USER], "[system]S\n\nS[user]U\n\nU"),  # as Codex does
    ([USER, ANSWER, LATE], "[user]U[assistant]A[user]L"),
    ([USER, ANSWER, USER], "[user]U[assistant]A[user]U"),
]


@pytest.mark.parametrize(("messages", "expected"), ORDERS)
def test_messages_are_joined_where_the_template_refuses_their_order(messages, expected):
    refuses = (
        "{% if m.role == 'system' and not loop.first %}{{ raise_exception('late') }}{% endif %}"
        "{% if not loop.first and m.role == loop.previtem.role %}{{ raise_exception('twice') }}{% endif %}"
    )
    strict = "{% for m in messages %}" + refuses + "[{{ m.role }}]{{ m.content }}{% endfor %}"
    assert with_traits(ChatTemplate(strict)).render(messages) == expected
    with pytest.raises(RequestError, match="twice"):
        with_traits(ChatTemplate(strict)).render([USER, ANSWER, ANSWER])
    assert with_traits(ChatTemplate(THINKS)).render([USER, LATE]).startswith("[user]U[system]L")


@pytest.mark.parametrize("writes", ["c.arguments + ''", "c.arguments"])
def test_arguments_are_text_where_the_template_wants_text(writes):
    source = (
        "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}{{ "
        + writes.replace("c.", "c.function.")
        + " }}{% endfor %}{% endfor %}"
    )
    call = {"id": "", "type": "function", "function": {"name": "f", "arguments": {"a": True, "b": None}}}
    chat = [USER, {"role": "assistant", "content": "", "tool_calls": [call]}]
    assert with_traits(ChatTemplate(source)).render(chat) == 'U{"a": true, "b": null}'
    assert '"a": true' in with_traits(ChatTemplate(FAMILIES["hermes"])).render(chat)
    assert call["function"]["arguments"] == {"a": True, "b": None}


def prompt(source, messages=(USER,), tokenizer="bpe", **options):
    chat = Chat({KEY: source}, small(tokenizer), FORMATS)
    return chat.turn(ChatRequest.read(messages, **options)).prompt


@pytest.mark.parametrize(
    ("source", "reasoning", "opening"),
    [
        (FAMILIES["hermes"], True, "<|im_start|>assistant\n"),
        (FAMILIES["hermes"], False, "<|im_start|>assistant\n<think>\n\n</think>\n\n"),
        (THINKS, None, "[assistant]<think>\n"),
        (THINKS, False, "[assistant]<think>\n\n</think>\n\n"),
        (BUILTIN["chatml"] + "{# knows <think> #}", False, "<|im_start|>assistant\n<think>\n\n</think>\n\n"),
        (BUILTIN["chatml"], False, "<|im_start|>assistant\n"),
    ],
)
def test_reasoning_is_switched(source, reasoning, opening):
    assert prompt(source, reasoning=reasoning).opening == opening


def test_an_answer_is_gone_on_with():
    begun = {"role": "assistant", "content": "Hello "}
    assert prompt(BUILTIN["chatml"], [USER, begun]).text.endswith("<|im_start|>assistant\nHello ")
    assert prompt(BUILTIN["llama3"], [USER, begun]).text.endswith("assistant<|end_header_id|>\n\nHello ")
    reasoned = {"role": "assistant", "content": "", "reasoning": "Well"}
    assert prompt(FAMILIES["hermes"], [USER, reasoned]).opening.endswith("<think>\nWell")
    with pytest.raises(RequestError, match="cannot be continued"):
        prompt("{% for m in messages %}{{ m.role }}{% endfor %}", [USER, begun])
    with pytest.raises(RequestError, match="only a message of the assistant"):
        prompt(BUILTIN["chatml"], [USER], continue_final_message=True)
