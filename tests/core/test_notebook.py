"""HTML of results for notebooks: it shows what matters, and no text of a model or a file becomes markup."""

from html.parser import HTMLParser

import pytest

import pumice
from pumice.engine import Timings
from pumice.notebook import MAX_TEXT, facts_table, show_count, text_block

HOSTILE = "<script>alert('&')</script>"
TIMINGS = Timings(generated_tokens=3, generation_seconds=0.5)


class Tags(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)

    def handle_data(self, data):
        self.text += data


@pytest.mark.parametrize(
    "result",
    [
        pumice.Completion(HOSTILE, [1, 2, 3], "stop", TIMINGS),
        pumice.Message(HOSTILE, reasoning=HOSTILE, tool_calls=[pumice.ToolCall(HOSTILE, {HOSTILE: HOSTILE})]),
        pumice.ChatCompletion(pumice.Message(HOSTILE), "stop", pumice.Usage(), []),
        pumice.Summary({"general.name": HOSTILE, "general.architecture": HOSTILE}, 1, 2, 3, HOSTILE, 0.0, ""),
    ],
    ids=lambda result: type(result).__name__,
)
def test_text_is_escaped(result):
    page = Tags(result._repr_html_())
    assert "script" not in page.tags
    assert HOSTILE in page.text


def test_a_completion_shows_text_tokens_reason_and_speed():
    page = Tags(pumice.Completion("a\nb", [1, 2, 3], "length", TIMINGS)._repr_html_())
    assert page.text == "a\nb3 tokens · length · 4.0 tokens/s"


def test_an_answer_shows_reasoning_content_and_calls():
    message = pumice.Message("Hello", reasoning="Hm", tool_calls=[pumice.ToolCall("add", {"a": 1})])
    answer = pumice.ChatCompletion(message, "tool_calls", pumice.Usage(completion_tokens=1), [5])
    page = Tags(answer._repr_html_())
    assert page.text == 'reasoningHmHelloadd({"a": 1})1 token · tool_calls'
    assert "details" in page.tags


def test_a_model_shows_its_file_and_its_engine():
    with pumice.load(backend="numpy", n_ctx=64) as model:
        page = Tags(model._repr_html_())
        summary = model.summary
    for fact in (str(pumice.demo_model_path()), summary.file_type, "numpy", "64 tokens", "weights", "open"):
        assert fact in page.text
    assert "closed" in Tags(model._repr_html_()).text


def test_a_long_text_is_cut():
    html = text_block("<" * (MAX_TEXT + 1500))
    assert html.count("&lt;") == MAX_TEXT
    assert "1,500 more characters" in html
    assert len(facts_table("title", {"name": "x" * 10**6})) < 2 * MAX_TEXT


def test_counts():
    assert [show_count(n, "token") for n in (0, 1, 1200)] == ["0 tokens", "1 token", "1,200 tokens"]
