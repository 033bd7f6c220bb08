"""Structured output of a model: with every way to generate."""

import re
import subprocess
import sys

import pydantic
import pytest

import pumice
from imported_late import Late

jsonschema = Late("jsonschema")


@pytest.fixture(scope="module")
def model():
    with pumice.load(config={"backends": ["cpu", "numpy"]}, n_ctx=2048) as model:
        yield model


def test_a_form_that_a_text_begins(model):
    """The text before the trigger is free, the trigger belongs to the form, and its end ends the text."""
    grammar, options = 'root ::= "was " [0-9]{3} "!"', {"temperature": 0, "max_tokens": 60}
    free = model.generate("Once upon a time", **options).text
    assert "was " in free
    completion = model.generate("Once upon a time", grammar=grammar, grammar_triggers=["nowhere", "was"], **options)
    before, _, form = completion.text.rpartition("was ")
    assert free.startswith(before)
    assert before
    assert re.fullmatch(r"[0-9]{3}!", form)
    assert completion.finish_reason == "stop"
    chat = [{"role": "user", "content": "Once upon a time"}]
    content = model.chat(chat, grammar=grammar, grammar_triggers=["was"], **options, chat_template="chatml")
    assert re.fullmatch(r"(?s).*was [0-9]{3}!", content.message.content)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"grammar_triggers": ["a"]}, "nothing to trigger"),
        ({"regex": "a", "grammar_triggers": []}, "expected 1 to 16 texts, not 0"),
        ({"regex": "a", "grammar_triggers": [""]}, "each text must have 1 to 256 characters"),
        ({"regex": "a", "grammar_triggers": "a"}, "must be a list of texts, not 'a'"),
    ],
)
def test_triggers_are_checked(model, options, message):
    with pytest.raises(pumice.RequestError, match=f"^grammar_triggers.*{message}"):
        model.generate("a", **options)


def test_a_class_of_pydantic(model):
    class Person(pydantic.BaseModel, extra="forbid"):
        name: str = pydantic.Field(max_length=9)
        tall: bool

    text = model.generate("A girl", json_schema=Person, max_tokens=200, seed=1).text
    assert Person.model_validate_json(text).tall in (True, False)


def test_a_grammar_that_becomes_too_complex_ends_only_its_sequence(model, monkeypatch):
    from pumice.grammar import Constraint

    def fail(self):
        raise pumice.RequestError("the grammar cannot go on: too much")

    with monkeypatch.context() as patch:
        patch.setattr(Constraint, "mask", fail)
        with pytest.raises(pumice.RequestError, match="too much"):
            model.generate("x", choices=["a", "b"])
    assert model.generate("Is it?", choices=["yes", "no"]).text in ("yes", "no")


@pytest.fixture(scope="module")
def two_ends(tmp_path_factory):
    """The demo model with a second token that ends an answer."""
    path = tmp_path_factory.mktemp("ends") / "two-ends.gguf"
    change = ["tokenizer.ggml.eot_token_id=u32:2", "-o", path]
    subprocess.run([sys.executable, "-m", "pumice", "gguf", "set", pumice.demo_model_path(), *change], check=True)
    with pumice.load(path, backend="numpy", n_ctx=1024, config={"chat_template": "chatml"}) as model:
        assert len(model.tokenizer.eog) == 2
        yield model


OBJECT = {"type": "object"}
FORMS = {
    "choices": ({"choices": ["yes", "no"]}, "yes|no"),
    "grammar": ({"grammar": 'root ::= "yes" | "no"'}, "yes|no"),
    "regex": ({"regex": "[ab]{2}"}, "[ab]{2}"),
    "Lark": ({"grammar": 'start: "yes" | "no"'}, "yes|no"),
    "schema": ({"json_schema": {"properties": {"a": {"const": 1}}, "required": ["a"]} | OBJECT}, r'\{"a": ?1\}'),
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize(
    "more", [{"ignore_eos": True}, {"ignore_eos": True, "logprobs": 1}, {"min_tokens": 30}, {"logit_bias": {2: -100.0}}]
)
def test_a_form_ends_when_it_is_complete(two_ends, name, more):
    form, pattern = FORMS[name]
    options = {**form, **more, "max_tokens": 60, "temperature": 0.0}
    completion = two_ends.generate("Is it?", **options)
    assert re.fullmatch(pattern, completion.text)
    assert completion.finish_reason == "stop"
    assert "".join(piece.text for piece in two_ends.stream("Is it?", **options)) == completion.text
    chat = two_ends.chat([{"role": "user", "content": "Is it?"}], **options)
    assert re.fullmatch(pattern, chat.message.content)
    assert chat.finish_reason == "stop"


@pytest.mark.parametrize(
    "form",
    [
        {"json_schema": {"properties": {"name": {"maxLength": 9}, "tall": {"type": "boolean"}}}},
        {"grammar": 'root ::= "the " [a-z]{3} " said " [a-z]{4} " to " [a-z]{3}'},
    ],
    ids=["schema", "grammar"],
)
@pytest.mark.parametrize(
    "sampling",
    [{}, {"mirostat": 2}, {"xtc_probability": 0.5, "xtc_threshold": 0.05}],
    ids=["default", "mirostat", "xtc"],
)
def test_log_probabilities_change_no_text(model, form, sampling):
    options = {**form, **sampling, "temperature": 1.5, "max_tokens": 60, "top_k": 0}
    for seed in range(4):
        plain, *scored = (
            model.generate("Once", seed=seed, **options, **more)
            for more in ({}, {"logprobs": 1}, {"logprobs": 1, "logprobs_sampled": True})
        )
        assert [completion.tokens for completion in scored] == [plain.tokens] * 2
