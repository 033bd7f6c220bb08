"""Arguments held to a schema: which texts the grammar takes, and that they are read as the schema says."""

import pytest

import pumice
from grammar_walks import tokens_of
from imported_late import Late
from pumice.chat import FORMATS, ChatRequest
from pumice.chat.answer_grammar import answer_grammar
from pumice.chat.messages import read_tools
from pumice.chat.parser import ChatParser
from pumice.grammar import Compiler, Constraint

jsonschema = Late("jsonschema")

NESTED = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "unit": {"enum": ["c", "f"]},
        "days": {"type": "integer", "minimum": 1},
        "at": {
            "type": "object",
            "properties": {"x": {"type": "number"}, "tags": {"type": "array", "items": {"type": "string"}}},
        },
        "free": {"anyOf": [{"type": "null"}, {"type": "array", "items": {"type": "integer"}}]},
    },
    "required": ["city"],
    "additionalProperties": False,
}
OPTIONAL = {
    "type": "object",
    "properties": {"a": {"type": "boolean"}, "b": {"type": "string"}},
    "additionalProperties": False,
}
EMPTY = {"type": "object", "properties": {}, "additionalProperties": False}


@pytest.fixture(scope="module")
def compiler():
    tokenizer = pumice.load_tokenizer(pumice.demo_model_path())
    return Compiler(lambda: tokenizer, tokenizer.n_vocab)


def takes(compiler, schema, text, format="functiongemma") -> bool:
    request = ChatRequest.read(
        [{"role": "user", "content": "Hi"}], tools=[{"name": "f", "parameters": schema}], tool_choice="required"
    )
    constraint = Constraint(answer_grammar(request, FORMATS[format], "", {}), compiler)
    for token in compiler.vocabulary.tokenize_str(text):
        mask = constraint.mask()
        if mask is not None and token not in tokens_of(mask):
            return False
        constraint.accept(token)
    return True


@pytest.mark.parametrize(
    ("schema", "written"),
    [
        (NESTED, "{city:<escape>Paris, {x:1} <escape>}"),
        (NESTED, "{city:<escape><escape>,days:3,unit:<escape>f<escape>}"),
        (NESTED, "{at:{tags:[<escape>a<escape>,<escape>b<escape>],x:1.5},city:<escape>a<escape>,free:[1, 2]}"),
        (NESTED, "{at:{},city:<escape>a<escape>,free:null}"),
        (OPTIONAL, "{}"),
        (OPTIONAL, "{b:<escape>x<escape>}"),
        (OPTIONAL, "{a:true,b:<escape>x<escape>}"),
        (EMPTY, "{}"),
        ({}, '{"any": ["thing", 1]}'),
    ],
)
def test_arguments_within_the_schema_are_accepted(compiler, schema, written):
    text = f"<start_function_call>call:f{written}<end_function_call>"
    assert takes(compiler, schema, text)
    parser = ChatParser(FORMATS["functiongemma"], read_tools([{"name": "f", "parameters": schema}]))
    [(kind, call)] = [*parser.push(text), *parser.finish()]
    assert kind == "call"
    jsonschema.validate(call.arguments, schema)


@pytest.mark.parametrize(
    ("schema", "written"),
    [
        (NESTED, "{}"),
        (NESTED, "{city:Paris}"),
        (NESTED, "{city:<escape>a<escape>,unit:<escape>k<escape>}"),
        (NESTED, "{city:<escape>a<escape>,days:0}"),
        (NESTED, "{city:<escape>a<escape>,}"),
        (OPTIONAL, "{,a:true}"),
        (OPTIONAL, "{c:1}"),
        (EMPTY, "{a:1}"),
    ],
)
def test_arguments_against_the_schema_are_not_accepted(compiler, schema, written):
    assert not takes(compiler, schema, f"<start_function_call>call:f{written}<end_function_call>")


OPTIONS = {
    "type": "object",
    "properties": {
        "name": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "count": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "unit": {"$ref": "#/$defs/unit"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "at": {"type": "object", "properties": {"x": {"type": "number"}}, "additionalProperties": False},
    },
    "additionalProperties": False,
    "$defs": {"unit": {"enum": ["1", "2"]}},
}
MINIMAX = "]<]minimax[>["


@pytest.mark.parametrize(
    ("format", "written", "fits"),
    [
        ("qwen3-coder", "<tool_call><function=f><parameter=name>12</parameter></function></tool_call>", True),
        ("qwen3-coder", "<tool_call><function=f><parameter=count>null</parameter></function></tool_call>", True),
        ("qwen3-coder", "<tool_call><function=f><parameter=count>x</parameter></function></tool_call>", False),
        ("minimax-m3", "]<]minimax[>[<tags>]<]minimax[>[<item>1]<]minimax[>[</item>]<]minimax[>[</tags>", True),
        ("minimax-m3", ']<]minimax[>[<tags>["1"]]<]minimax[>[</tags>', True),
        ("minimax-m3", "]<]minimax[>[<at>]<]minimax[>[<x>1.5]<]minimax[>[</x>]<]minimax[>[</at>", True),
        ("minimax-m3", "]<]minimax[>[<at>]<]minimax[>[</at>", False),
        ("minimax-m3", "]<]minimax[>[<at>]<]minimax[>[<x>y]<]minimax[>[</x>]<]minimax[>[</at>", False),
        ("minicpm", '<function name="f"><param name="name"><![CDATA[</param>]]></param></function>', True),
        ("minicpm", '<function name="f"><param name="name">a < b</param></function>', True),
        ("lfm2", '<|tool_call_start|>[f(name=None, tags=[\'a\', "b"], at={"x": 1})]<|tool_call_end|>', True),
        ("lfm2", "<|tool_call_start|>[f(tags=[])]<|tool_call_end|>", True),
        ("lfm2", "<|tool_call_start|>[f()]<|tool_call_end|>", True),
        ("lfm2", "<|tool_call_start|>[f(tags=[1])]<|tool_call_end|>", False),
        ("lfm2", "<|tool_call_start|>[f(, count=1)]<|tool_call_end|>", False),
        ("hermes", '<tool_call>{"name": "f", "arguments": {"name": null, "tags": []}}</tool_call>', True),
        ("llama3", '{"type": "function", "name": "f", "parameters": {}}', True),
    ],
)
def test_every_way_to_write_arguments(compiler, format, written, fits):
    if format == "minimax-m3":
        written = f'{MINIMAX}<tool_call>{MINIMAX}<invoke name="f">{written}{MINIMAX}</invoke>{MINIMAX}</tool_call>'
    assert takes(compiler, OPTIONS, written, format) == fits
    if fits:
        parser = ChatParser(FORMATS[format], read_tools([{"name": "f", "parameters": OPTIONS}]))
        [call] = [part[1] for part in [*parser.push(written), *parser.finish()] if part[0] == "call"]
        jsonschema.validate(call.arguments, OPTIONS)


LIMITED = {
    "type": "object",
    "properties": {
        "unit": {"enum": ["C", "F"]},
        "code": {"type": "string", "pattern": "^[a-z]{2}$"},
        "odd": {"type": "string", "pattern": "^(?=a)a$"},
        "short": {"type": "string", "minLength": 2, "maxLength": 3},
        "perhaps": {"anyOf": [{"type": "string", "maxLength": 2}, {"type": "null"}]},
        "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 2},
    },
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("key", "value", "fits"),
    [
        ("unit", "C", True),
        ("unit", "\nC\n", True),
        ("unit", " C", False),
        ("code", "ab", True),
        ("code", "abc", False),
        ("odd", "anything", False),
        ("short", "ab", True),
        ("short", "a", False),
        ("short", "abcd", False),
        ("perhaps", "ab", True),
        ("perhaps", "null", True),
        ("perhaps", "abc", False),
    ],
)
def test_text_keeps_to_its_limits(compiler, key, value, fits):
    call = f"<tool_call><function=f><parameter={key}>{value}</parameter></function></tool_call>"
    assert takes(compiler, LIMITED, call, "qwen3-coder") == fits
    if "\n" not in value and value != "null":
        call = f"<start_function_call>call:f{{{key}:<escape>{value}<escape>}}<end_function_call>"
        assert takes(compiler, LIMITED, call) == fits


@pytest.mark.parametrize(("tags", "fits"), [(0, False), (1, True), (2, True), (3, False)])
def test_lists_keep_to_their_limits(compiler, tags, fits):
    listed = ",".join(["<escape>a<escape>"] * tags)
    assert takes(compiler, LIMITED, f"<start_function_call>call:f{{tags:[{listed}]}}<end_function_call>") == fits
    listed = ", ".join(["'a'"] * tags)
    assert takes(compiler, LIMITED, f"<|tool_call_start|>[f(tags=[{listed}])]<|tool_call_end|>", "lfm2") == fits
