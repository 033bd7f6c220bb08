"""Templates beside transformers, and beside Jinja2 as transformers sets it up; and what a template must not do."""

import contextlib
import copy
import json
import os
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest
from jinja2.sandbox import SandboxedEnvironment

import pumice.chat.jinja
from family_templates import FAMILIES, jinja2_as_transformers
from pumice.chat import BUILTIN
from pumice.chat.jinja import JinjaTemplate
from pumice.errors import ModelError, RequestError

TEMPLATES = json.loads((Path(__file__).parents[2] / "fixtures/template_features.json").read_text())
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
FUNCTION = {"name": "get_weather", "arguments": {"city": 'Paris "x"', "days": 3, "share": 1.0, "when": None}}
CALLS = [{"id": "abcdef123", "type": "function", "function": FUNCTION}]
CALL = {"role": "assistant", "content": "", "tool_calls": CALLS}
RESULT = {"role": "tool", "tool_call_id": "abcdef123", "name": "get_weather", "content": '{"t": 3}'}
CHATS = {
    "user": [USER],
    "system": [SYSTEM, USER],
    "turns": [SYSTEM, USER, ANSWER, USER],
    "calls": [SYSTEM, USER, CALL, RESULT, ANSWER, USER],
}
OTHERS = Path(os.environ.get("PUMICE_CHAT_TEMPLATES", "no such folder"))


@pytest.fixture(autouse=True)
def _now(monkeypatch):
    class Clock:
        @staticmethod
        def now() -> datetime:
            return NOW

    monkeypatch.setattr(pumice.chat.jinja, "datetime", Clock)


def check(source: str, environment: SandboxedEnvironment | None = None) -> int:
    """Render every chat with both; the number of texts that were compared. What Jinja2 refuses does not count."""
    reference = (environment or jinja2_as_transformers(NOW.strftime)).from_string(source)
    template = JinjaTemplate(source)
    compared = 0
    for name, messages in CHATS.items():
        for tools in (None, TOOLS):
            context = {"messages": messages, "tools": tools, "documents": None, "bos_token": "<s>", "eos_token": "</s>"}
            for add_generation_prompt in (False, True):
                context["add_generation_prompt"] = add_generation_prompt
                try:
                    expected = reference.render(**copy.deepcopy(context))
                except Exception:
                    continue
                assert template.render(context) == expected, (name, bool(tools), add_generation_prompt)
                compared += 1
    return compared


@pytest.mark.parametrize("name", TEMPLATES["features"])
def test_features_render_as_with_transformers(name):
    feature = TEMPLATES["features"][name]
    assert JinjaTemplate(feature["template"]).render(TEMPLATES["context"]) == feature["text"]


@pytest.mark.parametrize("source", [*BUILTIN.values(), *FAMILIES.values()], ids=[*BUILTIN, *FAMILIES])
def test_templates_render_as_with_jinja2(source):
    assert check(source) == 16


@pytest.mark.skipif(not OTHERS.is_dir(), reason="PUMICE_CHAT_TEMPLATES names no folder of templates (*.jinja)")
def test_published_templates_render_as_with_jinja2():
    changing = jinja2_as_transformers(NOW.strftime, SandboxedEnvironment)  # lists, as two templates of Kimi K2 do
    compared = {}
    for path in sorted(OTHERS.glob("*.jinja")):
        source = path.read_text()
        compared[path.name] = check(source, changing if ".append(" in source else None)
    assert len([name for name, count in compared.items() if count]) >= 40, compared


def test_an_error_of_a_template_names_its_line():
    source = "{% macro m(x) %}\n{{ x.a.b }}\n{% endmacro %}\n\n{{ m({}) }}"
    with pytest.raises(RequestError, match=r"the chat template fails in line 2: 'dict object' has no attribute 'a'$"):
        JinjaTemplate(source).render({})
    with pytest.raises(RequestError, match=r"fails in line 1: TypeError: can only concatenate str .*$"):
        JinjaTemplate("{{ 'a' + n }}").render({"n": 1})


def test_messages_of_a_template_reach_the_user():
    template = JinjaTemplate("{{ raise_exception('only\\none \x1a line') }}")
    with pytest.raises(RequestError, match=r"refuses these messages: only \? one \? line$|: only one \? line$"):
        template.render({})


ESCAPES = [
    "{{ '' | attr('__class__') }}",
    "{{ ['']|map(attribute='__class__')|list }}",
    "{{ '{0.__class__}' | attr('format')('') }}",
    "{{ ('{0.__class__}' | safe).format('') }}",
    "{{ ['']|map('{0.__class__}'.format)|list }}",
    "{{ raise_exception.__globals__ }}",
    "{{ dict.mro() }}",
    "{{ self._TemplateReference__context }}",
    "{{ namespace(__class__=1) }}",
    "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
    "{{ (messages | map('upper')).gi_frame.f_back }}",
    "{% include '/etc/passwd' %}",
    "{% import 'os' as os %}{{ os.environ }}",
]


@pytest.mark.parametrize("source", ESCAPES)
def test_a_template_does_not_reach_python(source):
    """Jinja2 refuses each, or has nothing under the name; no text shows an object of Python."""
    template = JinjaTemplate(source)
    with contextlib.suppress(RequestError):
        assert template.render({"messages": []}) in ("", "[Undefined]")


@pytest.mark.parametrize(
    "source",
    [
        "{{ range(10000000000) | list | length }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ messages.nothing.at_all }}",
        "{{ messages | tojson(indent=[]) }}",
        "{% set l = [] %}{% set _ = l.append(l) %}{{ l | tojson }}",
        "{{ 1 // 0 }}",
        "{{ '\\ud800'.encode() }}",
        "{{ 9 ** 9 ** 9 % 'a' if false else 'a' % 1 }}",
    ],
)
def test_hostile_and_invalid_templates_are_errors(source):
    with pytest.raises(RequestError, match=r"the chat template fails in line 1: [^\n]+$"):
        JinjaTemplate(source).render({"messages": []})


@pytest.mark.parametrize(
    "source",
    ["{{ messages | no_such_filter }}", "{% nothing %}", "{{ " + "(" * 500 + "1" + ")" * 500 + " }}", "{% break %}"],
)
def test_what_does_not_compile_is_an_error_of_the_model(source):
    with pytest.raises(ModelError, match=r"^the chat template is not valid Jinja: [^\n]+$"):
        JinjaTemplate(source)


def test_jinja2_is_imported_by_workers_alone():
    program = """if True:
        import sys, pumice
        with pumice.load(config={"chat_template": "chatml"}) as model:
            assert model.template.apply([{"role": "user", "content": "Hi"}])
        print("jinja2" in sys.modules)"""
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "False\n"


def test_a_long_template_is_refused():
    with pytest.raises(ModelError, match="the limit is"):
        JinjaTemplate("x" * ((1 << 20) + 1))


def test_a_long_text_ends_while_it_is_written(monkeypatch):
    monkeypatch.setattr(pumice.chat.jinja, "MAX_OUTPUT", 1000)
    assert len(JinjaTemplate("{% for i in range(1000) %}x{% endfor %}").render({})) == 1000
    with pytest.raises(RequestError, match="writes more than 1000 characters"):
        JinjaTemplate("{% for i in range(1001) %}x{% endfor %}{{ raise_exception('too late') }}").render({})
