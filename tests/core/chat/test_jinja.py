"""MiniJinja beside Jinja2 as transformers sets it up, and the limits of a template."""

import os
from datetime import datetime
from pathlib import Path

import pytest

import pumice.chat.jinja
from family_templates import FAMILIES, FEATURES, jinja2_as_transformers
from pumice.chat import BUILTIN
from pumice.chat.jinja import JinjaTemplate
from pumice.errors import ModelError, RequestError

NOW = datetime(2026, 1, 2, 3, 4)
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": 'The "weather" <é> & more',
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "of the earth"},
                    "days": {"type": "integer", "description": "to come"},
                },
                "required": ["city"],
            },
        },
    }
]
SYSTEM = {"role": "system", "content": 'You\'re <kind> & "good".'}
USER = {"role": "user", "content": " Hi there\n"}
ANSWER = {"role": "assistant", "content": "Hello!", "reasoning_content": "\nGreet.\n"}
FUNCTION = {"name": "get_weather", "arguments": {"city": 'Paris "x"', "days": 3}}
CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"id": "abcdef123", "type": "function", "function": FUNCTION}],
}
RESULT = {"role": "tool", "tool_call_id": "abcdef123", "name": "get_weather", "content": '{"t": 3}'}
CHATS = {
    "user": [USER],
    "system": [SYSTEM, USER],
    "turns": [SYSTEM, USER, ANSWER, USER],
    "calls": [SYSTEM, USER, CALL, RESULT, ANSWER, USER],
}
OTHERS = Path(os.environ.get("PUMICE_CHAT_TEMPLATES", "no such folder"))
ESCAPED = "functionary-medium-v3.1"  # its `safe` makes Jinja2 escape what is added to it; here nothing is escaped


@pytest.fixture(autouse=True)
def _now(monkeypatch):
    class Clock:
        @staticmethod
        def now() -> datetime:
            return NOW

    monkeypatch.setattr(pumice.chat.jinja, "datetime", Clock)


def check(source: str) -> int:
    """Render every chat with both; the number of texts that were compared. What Jinja2 refuses does not count."""
    reference = jinja2_as_transformers(NOW.strftime).from_string(source)
    template = JinjaTemplate(source)
    compared = 0
    for name, messages in CHATS.items():
        for tools in (None, TOOLS):
            context = {"messages": messages, "tools": tools, "documents": None, "bos_token": "<s>", "eos_token": "</s>"}
            for add_generation_prompt in (False, True):
                context["add_generation_prompt"] = add_generation_prompt
                try:
                    expected = reference.render(**context)
                except Exception:
                    continue
                assert template.render(context) == expected, (name, bool(tools), add_generation_prompt)
                compared += 1
    return compared


@pytest.mark.parametrize("name", BUILTIN)
def test_built_in_templates_render_as_with_jinja2(name):
    assert check(BUILTIN[name]) == 16


@pytest.mark.parametrize("name", FAMILIES)
def test_templates_of_families_render_as_with_jinja2(name):
    assert check(FAMILIES[name]) == 16


def test_everything_that_templates_use_of_jinja():
    assert check(FEATURES) == 16


@pytest.mark.skipif(not OTHERS.is_dir(), reason="PUMICE_CHAT_TEMPLATES names no folder of templates (*.jinja)")
def test_published_templates_render_as_with_jinja2():
    compared = {
        path.name: check(path.read_text()) for path in sorted(OTHERS.glob("*.jinja")) if ESCAPED not in path.name
    }
    assert len([name for name, count in compared.items() if count]) >= 40, compared


def test_a_template_that_is_none_is_an_error_with_a_line():
    with pytest.raises(ModelError, match=r"not valid Jinja.*chat:2"):
        JinjaTemplate("fine\n{% if x %")


def test_messages_of_a_template_reach_the_user():
    template = JinjaTemplate("{{ raise_exception('only\\none \x1a line') }}")
    with pytest.raises(RequestError, match=r"refuses these messages: only one \? line$"):
        template.render({})


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}",
        "{{ 'a' * 1000000000000 }}",
        "{{ range(10000000000) | list | length }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ messages.__class__.__mro__ }}",
        "{{ messages | no_such_filter }}",
        "{{ messages.nothing.at_all }}",
        "{{ messages | tojson(indent=[]) }}",
        "{% include '/etc/passwd' %}",
    ],
)
def test_hostile_and_invalid_templates_are_errors(source):
    with pytest.raises(RequestError, match="the chat template fails"):
        JinjaTemplate(source).render({"messages": []})


def test_a_long_template_is_refused():
    with pytest.raises(ModelError, match="the limit is"):
        JinjaTemplate("x" * ((1 << 20) + 1))


def test_fuel_grows_with_the_chat():
    source = "{% for m in messages %}{% for n in messages %}{% if n == m %}x{% endif %}{% endfor %}{% endfor %}"
    assert len(JinjaTemplate(source).render({"messages": [USER] * 300})) == 90000


def test_lists_that_a_template_changes():
    source = (
        "{%- set ns = namespace(ids=[]) -%}{%- for m in messages -%}{%- set _ = ns.ids.append(m) -%}{%- endfor -%}"
        "{%- set first = ns.ids.pop(0) -%}{{ first }} {{ ns.ids | join(',') }}"
    )
    assert JinjaTemplate(source).render({"messages": ["a", "b", "c"]}) == "a b,c"


def test_a_method_that_a_value_does_not_have_is_an_error_of_the_request():
    with pytest.raises(RequestError, match="the chat template fails"):
        JinjaTemplate("{{ messages.startswith('a') }}").render({"messages": [1]})
