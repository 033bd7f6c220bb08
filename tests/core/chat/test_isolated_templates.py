"""Templates in a process of their own: the same text, the same errors, and an end to those that take too much."""

import pytest

import pumice
from pumice.chat import isolated
from pumice.chat.isolated import IsolatedRenderer
from pumice.errors import EngineError, ModelError, RequestError
from waiting import PATIENCE

GROWING = """{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}"""
PLAIN = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
CHAT = [{"role": "user", "content": "Hello"}]


@pytest.fixture(scope="module")
def renderer():
    made = IsolatedRenderer(max_memory=600 << 20, max_seconds=PATIENCE)
    yield made
    made.close()


def test_the_same_text(renderer):
    assert renderer(PLAIN, {"messages": CHAT}) == "user: Hello\n"


def test_errors_are_the_same(renderer):
    with pytest.raises(RequestError, match="refuses these messages: no"):
        renderer("{{ raise_exception('no') }}", {})
    with pytest.raises(ModelError, match="not valid Jinja"):
        renderer("{% if %}", {})


def test_a_template_that_takes_all_memory_ends_alone(renderer):
    with pytest.raises(RequestError, match="the chat template fails"):
        renderer(GROWING, {})
    assert renderer(PLAIN, {"messages": CHAT}) == "user: Hello\n"


def test_a_template_that_takes_too_long():
    renderer = IsolatedRenderer(max_memory=4 << 30, max_seconds=1)
    try:
        with pytest.raises(RequestError, match="the chat template fails: it takes more than 1 seconds"):
            renderer("{% set x = 'a' * 5000000 %}{% for i in range(9999) %}{{ x | upper | length }}{% endfor %}", {})
    finally:
        renderer.close()


def test_what_an_interrupted_rendering_gives_is_not_the_answer_to_the_next(renderer, monkeypatch):
    def interrupted(stream):
        raise KeyboardInterrupt

    renderer(PLAIN, {"messages": CHAT})
    with monkeypatch.context() as patch:
        patch.setattr(isolated.pickle, "load", interrupted)
        with pytest.raises(KeyboardInterrupt):
            renderer(PLAIN, {"messages": CHAT})
    assert renderer("{{ text }}", {"text": "the next"}) == "the next"


def test_a_process_that_does_not_start_is_an_error(monkeypatch):
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    with pytest.raises(EngineError, match=r"the process that renders chat templates does not start: .*/nowhere/python"):
        IsolatedRenderer()(PLAIN, {"messages": CHAT})


def test_a_model_in_a_process_renders_there():
    with pumice.load_process(config={"chat_template": PLAIN}) as model:
        assert model.apply_template(CHAT) == "user: Hello\n"
        with pytest.raises(RequestError, match="chat template fails"):
            model.apply_template(CHAT, chat_template=GROWING)
        assert model.chat(CHAT, max_tokens=3).usage.completion_tokens == 3
