"""Answers of models with random weights that have to have a form."""

import json

import pytest

import pumice
from family_templates import FAMILIES
from gguf_files import tiny_llama
from imported_late import Late
from pumice.chat import ChatFormat, ChatRequest
from pumice.chat.answer_grammar import answer_grammar

jsonschema = Late("jsonschema")

USER = {"role": "user", "content": "Hi"}
TIME = {"name": "get_time", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}}
SUN = {"type": "boolean"}
ANSWER = {"type": "object", "properties": {"sun": SUN}, "required": ["sun"], "additionalProperties": False}


def make_model(directory, template):
    path = tiny_llama(directory / "tiny.gguf", n_ctx=2048)
    return pumice.load(path, backend="numpy", n_ctx=2048, config={"chat_template": template})


def test_calls_of_a_format_without_any_are_refused():
    request = ChatRequest.read([USER], tools=[TIME], tool_choice="required")
    with pytest.raises(pumice.RequestError, match="tool_choice: calls of this model's chat format"):
        answer_grammar(request, ChatFormat(), "", {})


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    with make_model(tmp_path_factory.mktemp("chat"), FAMILIES["hermes"]) as model:
        yield model


def test_an_answer_has_its_form(model):
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": ANSWER}}
    for seed in range(3):
        completion = model.chat([USER], seed=seed, temperature=2.0, max_tokens=200, response_format=form)
        assert completion.finish_reason == "stop"
        jsonschema.validate(json.loads(completion.message.content), ANSWER)


def test_a_form_and_tools(model):
    ids = model.tokenizer.vocabulary.ids
    options = {"tools": [TIME], "json_schema": ANSWER, "max_tokens": 300, "seed": 1}
    called = model.chat([USER], logit_bias={ids["<0x3C>"]: 50.0}, **options)
    assert {call.name for call in called.message.tool_calls} == {"get_time"}
    answered = model.chat([USER], logit_bias={ids["<0x7B>"]: 50.0}, **options)
    jsonschema.validate(json.loads(answered.message.content), ANSWER)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"response_format": {"type": "xml"}}, "text, json_object or json_schema"),
        ({"response_format": {"type": "json_object"}, "regex": "a"}, "exclude each other"),
        ({"json_schema": {"type": "hiccup"}}, "hiccup"),
        ({"tools": [{"name": "f", "parameters": {"type": "hiccup"}}], "tool_choice": "required"}, "hiccup"),
    ],
)
def test_a_wrong_form_is_an_error_before_anything_is_generated(model, options, says):
    steps = model.engine.snapshot().n_steps
    with pytest.raises(pumice.RequestError, match=says):
        model.chat([USER], **options)
    assert model.engine.snapshot().n_steps == steps
