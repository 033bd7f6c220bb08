"""Beginning and end of texts of a grammar, and costs of hostile grammars."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grammar_walks import tokens_of
from pumice import RequestError
from pumice.grammar import Compiler, Constraint, Grammar, grammar_source
from tokenizer_fixtures import small, with_tokens
from waiting import seconds_of

YES_NO = grammar_source(choices=["yes", "no"])


def feed(constraint, compiler, text):
    """Accept the tokens of a text, each of which must be allowed."""
    for token in compiler.vocabulary.tokenize_str(text):
        mask = constraint.mask()
        assert mask is None or token in tokens_of(mask), compiler.tokenizer.token_text(token)
        constraint.accept(token)


def texts(constraint, compiler):
    """Return the tokens that may come next, as texts; an empty text is the end."""
    mask = constraint.mask()
    return None if mask is None else {compiler.texts[token].decode("utf-8", "replace") for token in tokens_of(mask)}


@given(text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20))
def test_every_text_can_be_demanded(compiler, text):
    """As a literal of GBNF, as a regular expression and as a choice."""
    literal = "".join(f"\\U{ord(mark):08x}" for mark in text)
    forms = {"grammar": f'root ::= "{literal}"'}, {"regex": re.escape(text)}, {"choices": [text]}
    for form in forms:
        constraint = Constraint(Grammar(grammar_source(**form)), compiler)
        feed(constraint, compiler, text)
        assert texts(constraint, compiler) == {""}, form


@pytest.mark.parametrize("between", ["", "\n", "\n\n"])
def test_it_begins_after_the_reasoning(compiler, between):
    constraint = Constraint(Grammar(YES_NO, reasoning=("<think>", "</think>"), reasons=True), compiler)
    feed(constraint, compiler, "Let me think: no, <think> </think")
    assert texts(constraint, compiler) is None
    feed(constraint, compiler, f">{between}")
    assert texts(constraint, compiler) >= {"y", "yes", "n"}
    feed(constraint, compiler, "yes")
    assert texts(constraint, compiler) == {""}


def test_reasoning_that_may_be_left_out(compiler):
    grammar = Grammar(YES_NO, reasoning=("!", "."))
    constraint = Constraint(grammar, compiler)
    assert texts(constraint, compiler) == {"y", "yes", "n", "!"}
    feed(constraint, compiler, "no")
    assert texts(constraint, compiler) == {""}
    constraint = Constraint(grammar, compiler)
    feed(constraint, compiler, "!")
    assert texts(constraint, compiler) is None
    feed(constraint, compiler, "yes or no.")
    assert texts(constraint, compiler) >= {"y", "yes", "n"}


@pytest.fixture(scope="module")
def harmony():
    tokenizer = with_tokens("bpe", dict.fromkeys(("<|start|>", "<|message|>", "<|end|>"), 4))
    return Compiler(lambda: tokenizer, tokenizer.n_vocab)


def written(constraint, compiler, text):
    """Return the part of a text that may be written."""
    for i, token in enumerate(tokens := compiler.tokenizer.tokenize(text, add_special=False)):
        if token not in tokens_of(constraint.allowed()):
            return compiler.tokenizer.detokenize(tokens[:i], special=True)
        constraint.accept(token)
    return text


@pytest.mark.parametrize(
    ("begin", "text"),
    [
        ("<|channel|>analysis<|message|>", "<|channel|>analysis<|message|>Well<|end|><|channel|>final<|message|>yes"),
        ("<|channel|>analysis<|message|>", "<|channel|>final<|message|>no"),
        (" to=self<|message|>", " to=self<|message|>Well<|end|>yes"),
    ],
)
def test_reasoning_begins_with_several_tokens(harmony, begin, text):
    source = grammar_source(grammar='root ::= "<|channel|>final<|message|>"? ("yes" | "no")')
    constraint = Constraint(Grammar(source, reasoning=(begin, "<|end|>")), harmony)
    assert written(constraint, harmony, text) == text
    for wrong in ("<|channel|>analysis yes", "<|channel|>final <|message|>", "to=selfish", "  to=self"):
        constraint = Constraint(Grammar(source, reasoning=(begin, "<|end|>")), harmony)
        assert written(constraint, harmony, wrong) != wrong


def test_a_token_does_not_end_the_reasoning_and_go_on():
    tokenizer = with_tokens("bpe", {">y": 1, ">\u010a": 1})
    made = Compiler(lambda: tokenizer, tokenizer.n_vocab)
    constraint = Constraint(Grammar(YES_NO, reasoning=("<think>", "</think>"), reasons=True), made)
    assert written(constraint, made, "Well</think") == "Well</think"
    [on, newline] = [tokenizer.vocabulary.ids[text] for text in (">y", ">\u010a")]
    assert on not in tokens_of(constraint.mask())
    assert newline in tokens_of(constraint.mask())
    constraint.accept(newline)
    assert written(constraint, made, "yes") == "yes"


@pytest.mark.parametrize("opening", ["y", "ye", "yes", "x", ""])
def test_it_goes_on_from_what_the_prompt_has_written(compiler, opening):
    constraint = Constraint(Grammar(YES_NO, opening=opening), compiler)
    rest = {"y": "es", "ye": "s", "yes": ""}.get(opening, "yes")
    assert written(constraint, compiler, rest) == rest
    assert texts(constraint, compiler) == {""}


def test_it_may_come_again(compiler):
    source = grammar_source(grammar='root ::= " "? ("[" | "(") ("yes" | "no") "]"')
    constraint = Constraint(Grammar(source, begins=("[", "("), again=True, reasoning=("<think>", "</think>")), compiler)
    for mark in ("[", "(", "["):
        feed(constraint, compiler, f"some text <think> [hm] </think> and{mark}")
        assert texts(constraint, compiler) == {"y", "yes", "n"}
        feed(constraint, compiler, "yes]")
        assert texts(constraint, compiler) is None


def test_what_is_certain_is_written_as_the_tokenizer_writes_it(compiler):
    constraint = Constraint(Grammar(grammar_source(choices=["once upon a time", "one day"])), compiler)
    feed(constraint, compiler, "on")
    taken = []
    feed(constraint, compiler, "ce")
    while texts(constraint, compiler) != {""}:
        [token] = tokens_of(constraint.mask())
        constraint.accept(token)
        taken.append(token)
    assert taken == compiler.tokenizer.tokenize(" upon a time", add_special=False)


def test_special_tokens_are_no_text(compiler):
    constraint = Constraint(Grammar(grammar_source(regex="(.|\n)*")), compiler)
    hidden = {token for token, text in enumerate(compiler.texts) if not text} - compiler.tokenizer.eog
    assert hidden
    assert not hidden & set(tokens_of(constraint.allowed()))


@pytest.mark.parametrize("name", ["spm", "bpe", "rwkv"])
def test_texts_between_others_have_no_space_before_them(name):
    tokenizer = small(name)
    compiler = Compiler(lambda: tokenizer, tokenizer.n_vocab)
    for text in ("abc", " abc", "{", "é"):
        tokens = compiler.vocabulary.tokenize_str(text)
        assert b"".join(compiler.texts[token] for token in tokens) == text.encode()


@pytest.mark.parametrize(
    "given",
    [
        {"regex": "(((a{1,1000}){1,1000}){1,1000}){1,1000}"},
        {"regex": "(a|a)*b|(a*)*c|(a+)+d"},
        {"regex": ".*a.{18}"},
        {"regex": "|".join(f"x{i}.*y" for i in range(2000))},
        {"grammar": 'root ::= root root | "a" | root root root |'},
        {"grammar": 'root ::= (("a"?){50}){50}'},
        {"grammar": 'root ::= ("a"{0,1000}){0,1000}'},
        {"grammar": f'root ::= {"(" * 60_000}"a"{")" * 60_000}'},
        {"json_schema": {"type": "array", "minItems": 100_000}},
        {"json_schema": {"type": "string", "pattern": "(((a{1,1000}){1,1000}){1,1000}){1,1000}"}},
    ],
    ids=lambda given: str(given)[:40],
)
def test_a_hostile_grammar_is_quick_or_refused(given, compiler):
    def walk() -> None:
        try:
            constraint = Constraint(Grammar(grammar_source(**given)), compiler)
            for _ in range(30):
                allowed = tokens_of(constraint.allowed())
                constraint.accept(next((t for t in allowed if compiler.texts[t] in (b"a", b"[")), allowed[0]))
        except RequestError:
            pass  # at once or at a step that needs too much

    assert seconds_of(walk, 3.0) < 3.0


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"regex": "(a"}, r"^regex: invalid regular expression \(a: unclosed group$"),
        ({"grammar": "start: /(a/"}, r"^grammar: invalid regular expression \(a: unclosed group$"),
        ({"json_schema": {"pattern": "(a"}}, r"^json_schema: invalid regular expression \(a: unclosed group$"),
        ({"json_schema": {"$ref": "#/$defs/a"}}, r"^json_schema: the \$ref to '/\$defs/a' leads to no part"),
        ({"json_schema": {"type": "text"}}, "^json_schema: Invalid type: text$"),
        ({"json_schema": {"not": {"type": "string"}}}, "not"),
        (
            {"json_schema": {"$ref": "https://a.org/x"}},
            r"^json_schema: the \$ref to 'https://a.org/x' leads to no part",
        ),
        ({"json_schema": 123}, "expected a JSON object"),
        ({"json_schema": "[1]"}, "expected a JSON object"),
        ({"json_schema": {"enum": [object()]}}, "cannot be represented in JSON"),
        ({"json_schema": {"enum": [float("nan")]}}, "cannot be represented in JSON"),
        ({"regex": ""}, "non-empty"),
        ({"regex": 3}, "non-empty"),
        ({"choices": []}, "1 to"),
        ({"choices": "yes"}, "a list of texts"),
        ({"choices": ["a", ""]}, "none of them empty"),
        ({"choices": ["a"], "regex": "a"}, "regex and choices exclude each other"),
        ({"grammar": "root ::= missing"}, "missing"),
        ({"grammar": 'root ::= "a'}, "grammar: "),
        ({"grammar": "start: nothing"}, "nothing"),
        ({"response_format": {"type": "xml"}}, "text, json_object or json_schema"),
        ({"response_format": {"type": "json_schema"}}, "schema: missing"),
        ({"response_format": "json"}, "expected an object"),
    ],
)
def test_a_wrong_grammar_is_one_line(given, says, compiler):
    with pytest.raises(RequestError, match=says) as error:
        Constraint(Grammar(grammar_source(**given)), compiler)
    assert "\n" not in str(error.value)


def test_response_formats():
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    assert grammar_source(response_format={"type": "text"}) is None
    expected = grammar_source(json_schema=schema)
    assert grammar_source(response_format={"type": "json_schema", "json_schema": {"schema": schema}}) == expected
    assert grammar_source(response_format={"type": "json_object", "schema": schema}) == expected
    assert grammar_source(response_format={"type": "json_object", "value": schema}) == expected
    assert grammar_source(response_format={"type": "json_object"}) == grammar_source(json_schema={"type": "object"})


def test_a_model_without_an_end_has_no_grammar(compiler):
    with pytest.raises(RequestError, match="no supported tokenizer"):
        Constraint(Grammar(YES_NO), Compiler(lambda: None, 100))
