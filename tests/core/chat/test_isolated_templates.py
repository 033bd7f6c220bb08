"""Templates in worker processes: a file's template, or a request, that takes too much ends alone."""

from dataclasses import replace

import pytest

import pumice
from pumice.chat import BUILTIN, FORMATS, Chat, ChatRequest, isolated
from pumice.chat.isolated import TemplateWorkers
from pumice.chat.prompt import PromptJob
from pumice.chat.template import ChatTemplate
from pumice.errors import ModelError, PromptTooLongError, RequestError, TooExpensiveError
from pumice.isolation import CallLimits, WorkerPool
from tokenizer_fixtures import small
from waiting import PATIENCE

GROWING = """{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}"""
PLAIN = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
CHAT = [{"role": "user", "content": "Hello"}]
KEY = "tokenizer.chat_template"
N = 5_000
NESTED = {
    ".a": "{{ a" + ".a" * N + " }}",
    "|trim": "{{ a" + "|trim" * N + " }}",
    "a+a": "{{ " + "+".join("a" * N) + " }}",
    "[0]": "{{ a" + "[0]" * N + " }}",
    "and": "{{ " + " and ".join("a" * N) + " }}",
    "(((": "{{ " + "(" * N + "a" + ")" * N + " }}",
    "[[[": "{{ " + "[" * N + "]" * N + " }}",
    "if if": "{% if a %}" * N + "{% endif %}" * N,
    "for for": "{% for i in a %}" * N + "{% endfor %}" * N,
    "elif": "{% if a %}" + "{% elif a %}" * N + "{% endif %}",
}
"""Templates that overrun the stack of what compiles them."""
_REPEAT = (
    "{% set ns = namespace(x=['a']) %}{% for i in range(99999) %}{% set ns.x = CHANGE %}{% endfor %}{{ ns.x | list }}"
)
BOMBS = {
    "text": ("{{ 'a' * 1000000000000 }}", "memory"),
    "constant": ("{% set x = 'a' * 3000000000 %}{{ x }}", "memory"),
    "format": ("{{ '%1000000000000d' % 1 }}", "memory"),
    "width": ("{{ '{:>1000000000000}'.format(1) }}", "memory"),
    "center": ("{{ 'a' | center(2000000000) }}", "memory"),
    "doubled text": (GROWING, "memory|processor time"),
    "doubled list": ("{% set l = [1] %}{% for i in range(60) %}{% set _ = l.extend(l) %}{% endfor %}", "memory"),
    "power": ("{{ n ** (n ** n) % 7 }}", "time"),
    "loops": ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "time"),
    "lipsum": ("{{ lipsum(n=100000000) }}", "time"),
    "generators": (_REPEAT.replace("CHANGE", "ns.x | batch(2)"), "crashed|time"),
    "nested list": (_REPEAT.replace("CHANGE", "[ns.x]"), "fails|crashed|time"),
    "output": ("{% for i in range(99999) %}{{ ' ' * 99999 }}{% endfor %}", "writes more than 67108864 characters"),
    "recursion": ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "fails in line 1: RecursionError"),
    "range": ("{{ range(10 ** 9) | list }}", "fails in line 1: OverflowError: Range too big"),
}
"""Templates that take too much when they are rendered, and what the error speaks of."""


def workers(n_workers=1, **limits):
    patient = CallLimits(cpu_seconds=60, wall_seconds=PATIENCE, wait_seconds=PATIENCE)
    return TemplateWorkers(WorkerPool("rendering the chat template", replace(patient, **limits), n_workers))


@pytest.fixture(scope="module")
def shared_workers():
    """Workers with a second for each call."""
    shared = workers(cpu_seconds=1)
    yield shared
    shared.pool.close()


def chat(source, **limits):
    return Chat({KEY: source}, small("bpe"), FORMATS, workers=workers(**limits))


def read(messages=CHAT, **options):
    return ChatRequest.read(messages, **options)


def test_a_template_that_takes_all_memory_ends_alone():
    growing, plain = (chat(source, memory=600 << 20) for source in (GROWING, PLAIN))
    with pytest.raises(TooExpensiveError, match=r"rendering the chat template (takes more than 600 MiB|crashed)"):
        growing.turn(read())
    assert plain.text(read()) == "user: Hello\n"


def test_errors_of_a_template():
    with pytest.raises(RequestError, match="refuses these messages: no"):
        chat("{{ raise_exception('no') }}").turn(read())
    with pytest.raises(ModelError, match="not valid Jinja"):
        chat("{% if %}").turn(read())


@pytest.mark.parametrize("name", NESTED)
def test_a_template_that_is_nested_too_deeply(shared_workers, name):
    """The compilers of Jinja2 and of Python refuse it, or end the worker; the next call does not see that."""
    with pytest.raises((ModelError, TooExpensiveError), match=r"^(the|rendering the) chat template [^\n]+$"):
        shared_workers.describe(ChatTemplate(NESTED[name]))
    assert shared_workers.describe(ChatTemplate(PLAIN)).capabilities["supports_system_role"]


@pytest.mark.parametrize("name", BOMBS)
def test_a_template_that_takes_too_much(shared_workers, name):
    source, reason = BOMBS[name]
    job = PromptJob(ChatTemplate(source), (), ("", "", ""), CHAT, variables={"n": 9})
    with pytest.raises((TooExpensiveError, RequestError), match=rf"^(the|rendering the) chat template .*({reason})"):
        shared_workers.write(job)
    assert shared_workers.write(replace(job, template=ChatTemplate(PLAIN))).text == "user: Hello\n"


def test_a_model_survives_its_template():
    with pumice.load(config={"chat_template": NESTED["and"]}) as model:
        with pytest.raises(ModelError, match="the chat template is not valid Jinja: it is nested too deeply"):
            model.template.capabilities()
        assert model.chat(CHAT, chat_template="plain", max_tokens=2).finish_reason == "length"


def test_a_request_that_takes_too_much_leaves_the_template_to_others():
    one = chat(BUILTIN["chatml"], cpu_seconds=1)
    with pytest.raises(TooExpensiveError, match="takes more than 1 seconds of processor time"):
        one.turn(read([{"role": "user", "content": "<" * 10_000_000}]))
    assert "Hello" in one.text(read())


def test_a_template_that_takes_too_long():
    slow = "{% set x = 'a' * 5000000 %}{% for i in range(9999) %}{{ x | upper | length }}{% endfor %}"
    with pytest.raises(TooExpensiveError, match="takes more than 1 seconds of processor time"):
        chat(slow, cpu_seconds=1, memory=4 << 30).turn(read())


def test_workers_exchange_plain_data():
    described = isolated.template_workers().describe(ChatTemplate(BUILTIN["chatml"], "<s>", "</s>"))
    assert described.template.bos == "<s>"
    assert described.template.traits.has_system


def test_a_prompt_that_is_far_too_long_is_not_tokenized(monkeypatch):
    """Many tools make such a prompt, for example."""
    tokenizer = small("bpe")
    lengths = []
    monkeypatch.setattr(tokenizer, "_encode", lambda text: lengths.append(len(text)) or [0] * len(text))
    one = Chat({KEY: "{{ messages[0].content }}{{ tools }}"}, tokenizer, FORMATS, workers=workers(), n_ctx=512)
    with pytest.raises(PromptTooLongError, match=r"the prompt has at least .* tokens, n_ctx is 512"):
        one.turn(read(tools=[{"name": "f", "description": "a b " * 50_000}]))
    assert max(lengths, default=0) < 20_000
