"""Calls of every family: one that has begun, or has to come, can only be of a tool, and fit its schema."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chat_answers import ANSWERS
from grammar_walks import tokens_of
from imported_late import Late
from nightly import crossed, variants
from pumice.chat import FORMATS, ChatRequest
from pumice.chat.answer_grammar import answer_grammar
from pumice.chat.parser import ChatParser
from pumice.grammar import Compiler, Constraint
from pumice.tokenizers import Tokenizer
from tokenizer_fixtures import small, with_tokens

jsonschema = Late("jsonschema")

FIXTURE = json.loads((Path(__file__).parents[2] / "fixtures" / "chat_answers.json").read_text())
LOOSE = ("arguments as JSON text", "no arguments", "Llama 3's Python tag")  # what is read and never asked for
ANSWERED = [
    *(
        (template["format"], answer["opening"], answer["text"])
        for template in FIXTURE["templates"].values()
        for answer in template["answers"]
    ),
    *((format, opening, text) for name, (format, opening, text, _) in ANSWERS.items() if name not in LOOSE),
]
USER = {"role": "user", "content": "Hi"}
TOOLS = [*FIXTURE["tools"], *({"type": "function", "function": {"name": name}} for name in "fg")]
TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", dict: "object", list: "array"}
TAG = re.compile(r"<[^<> ]+>|\[[^\[\] ]+\]")
NORMAL, CONTROL, USER_DEFINED = 1, 3, 4
ENOUGH = 6  # wrong answers of a format


def schema_of(value: Any) -> dict[str, Any]:
    """Return a schema that a value fits, and few other values do."""
    schema: dict[str, Any] = {"type": TYPES.get(type(value), "null")}
    if isinstance(value, dict):
        properties = {key: schema_of(part) for key, part in value.items()}
        schema |= {"properties": properties, "additionalProperties": False}
    items = [schema_of(item) for item in value] if isinstance(value, list) else []
    return schema | ({"items": items[0]} if items and items.count(items[0]) == len(items) else {})


def read(format: str, opening: str, text: str, tools: Sequence[Mapping[str, Any]]) -> list[tuple[str, Any]]:
    """The calls in an answer."""
    parser = ChatParser(FORMATS[format], tools, opening)
    return [(part[1].name, part[1].arguments) for part in parser.push(text) + parser.finish() if part[0] == "call"]


def reasons_only(format: str, opening: str, text: str) -> bool:
    """Whether the reasoning has not ended where the first call begins, so that it is one by luck."""
    begin, end = FORMATS[format].reasoning
    before = min((text.find(mark) for mark in FORMATS[format].begins if mark in text), default=len(text))
    return opening.rfind(begin) > opening.rfind(end) and end not in text[:before]


def wrong_texts(text: str, tools: Mapping[str, Any]) -> Iterator[str]:
    """An answer with another name for a tool or an argument, or with a text for a number."""
    keys = {key for schema in tools.values() for key in schema["properties"]}
    for word in (*tools, *keys):
        for place in re.finditer(rf"(?<![A-Za-z_]){re.escape(word)}(?![A-Za-z_])", text):
            yield text[: place.start()] + "fetch" + text[place.end() :]
    for place in re.finditer(r"\b\d+\b", text):
        yield text[: place.start()] + '"x"' + text[place.end() :]


def fits(arguments: Any, schema: Any) -> bool:
    try:
        jsonschema.validate(arguments, schema)
    except jsonschema.ValidationError:
        return False
    return True


@cache
def compiler(format: str, kind: int) -> Compiler:
    """Return the compiler of a vocabulary in which the marks of a format are tokens of a kind, and tokens span them."""
    known = small("bpe").vocabulary.ids
    marks = {mark for text in FORMATS[format].literals for mark in TAG.findall(text)} if kind != NORMAL else set()
    across = {mark[-1] + name for mark in FORMATS[format].begins for name in ("fetch", "ge")} - marks
    tokens = {**dict.fromkeys(sorted(marks), kind), **dict.fromkeys(sorted(across), NORMAL)}
    tokenizer = with_tokens("bpe", {text: kind for text, kind in tokens.items() if text not in known})
    return Compiler(lambda: tokenizer, tokenizer.n_vocab)


def special(tokenizer: Tokenizer, format: str) -> dict[str, int]:
    known = {tokenizer.vocabulary.tokens[token]: token for token in tokenizer.vocabulary.hidden - tokenizer.eog}
    return {text: token for text, token in known.items() if any(text in word for word in FORMATS[format].literals)}


@cache
def spelt(made: Compiler) -> dict[bytes, int]:
    return {made.tokenizer.token_bytes(token, special=True): token for token in range(made.tokenizer.n_vocab)}


def longest_tokens(made: Compiler, text: str) -> list[int]:
    """A text in long tokens, as a model could write it."""
    data, tokens = text.encode(), list[int]()
    while data:
        size = next(size for size in range(min(len(data), 40), 0, -1) if data[:size] in spelt(made))
        tokens.append(spelt(made)[data[:size]])
        data = data[size:]
    return tokens


def refuses(format: str, opening: str, text: str, tools: Sequence[Mapping[str, Any]], kind: int) -> bool:
    """Whether some token of the text may not come."""
    made = compiler(format, kind)
    request = ChatRequest.read([USER], tools=tools)
    grammar = answer_grammar(request, FORMATS[format], opening, special(made.tokenizer, format))
    assert grammar is not None
    constraint = Constraint(grammar, made)
    for token in longest_tokens(made, text):
        if token not in tokens_of(constraint.allowed()):
            return True
        constraint.accept(token)
    return False


@pytest.mark.parametrize(("format", "kind"), crossed(sorted(FORMATS), [NORMAL, CONTROL, USER_DEFINED]))
def test_parsed_calls_are_calls_of_a_tool(format, kind):
    tried = 0
    for opening, text in [(opening, text) for name, opening, text in ANSWERED if name == format]:
        schemas = {name: schema_of(arguments) for name, arguments in read(format, opening, text, TOOLS)}
        if not schemas or reasons_only(format, opening, text) or tried > ENOUGH:
            continue
        tools = [{"type": "function", "function": {"name": n, "parameters": s}} for n, s in schemas.items()]
        for wrong in wrong_texts(text, schemas):
            for name, arguments in read(format, opening, wrong, tools):
                if not fits(arguments, schemas.get(name, False)):
                    assert refuses(format, opening, wrong, tools, kind), wrong
                    tried += 1
    assert tried


def left_over(constraint: Constraint, made: Compiler, text: bytes) -> bytes:
    """Return the rest of a text that may not be written, by any tokens."""
    while text:
        allowed = set(tokens_of(constraint.allowed()))
        tokens = (spelt(made).get(text[:size]) for size in range(40, 0, -1))
        token = next((token for token in tokens if token in allowed), None)
        if token is None:
            return text
        constraint.accept(token)
        text = text[len(made.tokenizer.token_bytes(token, special=True)) :]
    return b""


@pytest.mark.parametrize("kind", variants([NORMAL, CONTROL, USER_DEFINED], [CONTROL]))
def test_forms_of_calls_that_models_write_are_allowed(kind):
    refused = []
    for format, opening, text in ANSWERED:
        made = compiler(format, kind)
        schemas = {name: schema_of(arguments) for name, arguments in read(format, opening, text, TOOLS)}
        if not schemas:
            continue
        tools = [{"name": name, "parameters": schema} for name, schema in schemas.items()]
        request = ChatRequest.read([USER], tools=tools)
        grammar = answer_grammar(request, FORMATS[format], opening, special(made.tokenizer, format))
        rest = left_over(Constraint(grammar, made), made, text.encode())
        if rest:
            refused.append((format, text, rest))
    assert not refused


PROSE = """Use functools.lru_cache: [1, 2], {"a": 1}. Action: go! <b>x</b> <function> call: f, to=functions. A tool_call
is ```json
{"name": "get", "arguments": {}}``` Here are [the] TOOLS, <|what|> and 3 > 2 >> 1."""


@pytest.mark.parametrize("format", sorted(FORMATS))
def test_text_without_calls_is_unrestricted(format):
    made = compiler(format, NORMAL)
    grammar = answer_grammar(ChatRequest.read([USER], tools=TOOLS), FORMATS[format], "", {})
    assert left_over(Constraint(grammar, made), made, PROSE.encode()) == b""


PLACE = {"type": "object", "properties": {"x": {"type": "boolean"}}, "additionalProperties": False}
PROPERTIES = {
    "city": {"enum": ["Paris", "Oslo"], "type": "string"},
    "days": {"type": "integer", "minimum": 1, "maximum": 99},
    "where": {"$ref": "#/$defs/place"},
    "note": {"anyOf": [{"type": "string", "maxLength": 5}, {"type": "null"}]},
    "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2},
}
WEATHER = {"type": "object", "properties": PROPERTIES, "required": ["city", "days"], "additionalProperties": False}
LIMITS = {
    "code": {"type": "string", "pattern": "^[a-z]{2}$"},
    "short": {"type": "string", "minLength": 2, "maxLength": 3},
    "tags": {"type": "array", "items": {"type": "string", "maxLength": 2}, "minItems": 2, "maxItems": 3},
}
HOLDS_TEXTS = ("functiongemma", "gemma4", "lfm2", "qwen3-coder")  # to limits; others to their types
LIMITED = {"type": "object", "properties": LIMITS, "required": list(LIMITS), "additionalProperties": False}
SCHEMAS = {
    "get_weather": {**WEATHER, "$defs": {"place": PLACE}},
    "get_weather_now": {"type": "object", "properties": {}, "additionalProperties": False},
    "limited": LIMITED,
    "json": {**PLACE, "required": ["x"]},
}


def random_answer(constraint: Constraint, tokenizer: Tokenizer, rng: np.random.Generator) -> str | None:
    """A text of tokens drawn from those that may come, short ones rather; None if it has not ended after so many."""
    spelt = partial(tokenizer.token_bytes, special=True)
    text = b""
    for _ in range(300):
        tokens = tokens_of(constraint.allowed())
        ends = tokenizer.eog.intersection(tokens)
        others = sorted((token for token in tokens if token not in ends), key=lambda token: len(spelt(token)))
        assert tokens, text
        if ends and (not others or rng.random() < 0.6):
            return text.decode("utf-8", "replace")
        others = others[:15] if rng.random() < 0.7 else others
        words = [token for token in others if spelt(token).strip()]
        token = int(rng.choice(words if words and rng.random() < 0.8 else others))
        constraint.accept(token)
        text += spelt(token)
    return None


@pytest.mark.parametrize(("format", "kind"), crossed(sorted(FORMATS), [NORMAL, CONTROL]))
def test_calls_that_have_to_come_fit(format, kind):
    begin, end = FORMATS[format].reasoning
    opening = next((opening for name, opening, _ in ANSWERED if name == format), "")
    opening += end if opening.rfind(begin) > opening.rfind(end) else ""
    made, rng = compiler(format, kind), np.random.default_rng(0)
    schemas = {name: schema for name, schema in SCHEMAS.items() if name != "limited" or format in HOLDS_TEXTS}
    tools = [{"name": name, "parameters": schema} for name, schema in schemas.items()]
    limited = {"type": "function", "function": {"name": "limited"}}
    for choice, n in (("required", 4), *([(limited, 2)] if "limited" in schemas else [])):
        options = {"tool_choice": choice, "parallel_tool_calls": False, "reasoning": False}
        request = ChatRequest.read([USER], tools=tools, **options)
        grammar = answer_grammar(request, FORMATS[format], opening, special(made.tokenizer, format))
        answers = [random_answer(Constraint(grammar, made), made.tokenizer, rng) for _ in range(n)]
        assert any(answers), choice
        for answer in filter(None, answers):
            [(name, arguments)] = read(format, opening, answer, request.tools)
            assert fits(arguments, SCHEMAS[name]), answer
