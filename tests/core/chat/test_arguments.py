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
        ("qwen3-coder", "<tool_call><function=f><parameter=unit>\n1\n</parameter></function></tool_call>", True),
        ("functiongemma", "<start_function_call>call:f{}<end_function_call>", True),
        ("functiongemma", "<start_function_call>call:f{at:{},name:null,tags:[]}<end_function_call>", True),
        ("functiongemma", "<start_function_call>call:f{tags:[<escape>a<escape>],name:null}<end_function_call>", False),
        ("functiongemma", "<start_function_call>call:f{,count:1}<end_function_call>", False),
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


def test_arguments_of_an_open_schema_are_any_object(compiler):
    assert takes(compiler, {}, '<start_function_call>call:f{"any": ["thing", 1]}<end_function_call>')
    assert not takes(compiler, {}, "<start_function_call>call:f[1]<end_function_call>")
