"""Templates in a process of their own: the same text, the same errors, and an end to those that take too much."""

import pytest

import pumice
from pumice.chat.isolated import IsolatedRenderer
from pumice.errors import ModelError, RequestError

GROWING = """{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}"""
PLAIN = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
CHAT = [{"role": "user", "content": "Hello"}]


@pytest.fixture(scope="module")
def renderer():
    made = IsolatedRenderer(max_memory=600 << 20, max_seconds=20)
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
    renderer = IsolatedRenderer(max_memory=4 << 30, max_seconds=1.5)
    try:
        assert renderer(PLAIN, {"messages": CHAT}) == "user: Hello\n"
        with pytest.raises(RequestError, match="the chat template fails"):
            renderer("{% set x = 'a' * 5000000 %}{% for i in range(9999) %}{{ x | upper | length }}{% endfor %}", {})
    finally:
        renderer.close()


def test_a_model_in_a_process_renders_there():
    with pumice.load_process(config={"chat_template": PLAIN}) as model:
        assert model.apply_template(CHAT) == "user: Hello\n"
        with pytest.raises(RequestError, match="chat template fails"):
            model.apply_template(CHAT, chat_template=GROWING)
        assert model.chat(CHAT, max_tokens=3).usage.completion_tokens == 3
