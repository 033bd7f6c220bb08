"""Templates in worker processes: a file's template, or a request, that takes too much ends alone."""

from dataclasses import replace

import pytest

import pumice
from pumice.chat import BUILTIN, FORMATS, Chat, ChatRequest
from pumice.chat.isolated import TemplateWorkers
from pumice.chat.prompt import PromptJob
from pumice.chat.template import ChatTemplate
from pumice.errors import ModelError, PromptTooLongError, RequestError, TooExpensiveError
from pumice.isolation import CallLimits, WorkerPool
from tokenizer_fixtures import small
from waiting import PATIENCE

PLAIN = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
CHAT = [{"role": "user", "content": "Hello"}]
KEY = "tokenizer.chat_template"
N = 5_000
NESTED = {
    "and": "{{ " + " and ".join("a" * N) + " }}",
    "(((": "{{ " + "(" * N + "a" + ")" * N + " }}",
    "for for": "{% for i in a %}" * N + "{% endfor %}" * N,
}
"""Templates that overrun the stack of what compiles them."""
_REPEAT = (
    "{% set ns = namespace(x=['a']) %}{% for i in range(99999) %}{% set ns.x = CHANGE %}{% endfor %}{{ ns.x | list }}"
)
BOMBS = {
    "text": ("{{ 'a' * 1000000000000 }}", "memory"),
    "power": ("{{ n ** (n ** n) % 7 }}", "time"),
    "nested list": (_REPEAT.replace("CHANGE", "[ns.x]"), "fails|crashed|time"),
    "output": ("{% for i in range(99999) %}{{ ' ' * 99999 }}{% endfor %}", "writes more than 67108864 characters"),
    "recursion": ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "fails in line 1: RecursionError"),
}
"""Templates that take too much when they are rendered, and what the error speaks of."""


def workers(n_workers=1, **limits):
    patient = CallLimits(cpu_seconds=60, wall_seconds=PATIENCE, wait_seconds=PATIENCE)
    return TemplateWorkers(WorkerPool("rendering the chat template", replace(patient, **limits), n_workers))


@pytest.fixture(scope="module")
def shared_workers():
    """Workers with two seconds for each call, of which a start on a busy machine takes one."""
    shared = workers(cpu_seconds=2)
    yield shared
    shared.pool.close()


def chat(source, **limits):
    return Chat({KEY: source}, small("bpe"), FORMATS, workers=workers(**limits))


def read(messages=CHAT, **options):
    return ChatRequest.read(messages, **options)


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


def test_a_prompt_that_is_far_too_long_is_not_tokenized(monkeypatch):
    """Many tools make such a prompt, for example."""
    tokenizer = small("bpe")
    lengths = []
    monkeypatch.setattr(tokenizer, "_encode", lambda text: lengths.append(len(text)) or [0] * len(text))
    one = Chat({KEY: "{{ messages[0].content }}{{ tools }}"}, tokenizer, FORMATS, workers=workers(), n_ctx=512)
    with pytest.raises(PromptTooLongError, match=r"the prompt has at least .* tokens, n_ctx is 512"):
        one.turn(read(tools=[{"name": "f", "description": "a b " * 50_000}]))
    assert max(lengths, default=0) < 20_000
