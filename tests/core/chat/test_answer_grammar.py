"""The grammar of tool calls: it allows what templates write, and nothing that is no call of the tools."""

import pytest

from family_templates import FAMILIES
from pumice import RequestError
from pumice.chat import FORMATS, ChatFormat, ChatRequest
from pumice.chat.answer_grammar import answer_grammar
from pumice.chat.messages import read_messages, read_tools
from pumice.chat.template import ChatTemplate
from pumice.chat.traits import with_traits
from pumice.grammar import Compiler
from tokenizer_fixtures import small

TOKENIZER = small("bpe")
SPECIAL = {TOKENIZER.vocabulary.tokens[token]: token for token in TOKENIZER.vocabulary.hidden - TOKENIZER.eog}
COMPILER = Compiler(lambda: TOKENIZER, TOKENIZER.n_vocab)
PROPERTIES = {"city": {"type": "string"}, "days": {"type": "integer"}, "unit": {"enum": ["C", "F"]}}
TOOLS = [
    {"name": "get_weather", "parameters": {"type": "object", "properties": PROPERTIES, "required": ["city"]}},
    {"name": "get_time", "parameters": {"type": "object", "properties": {}, "minProperties": 0}},
]
CALLS = [("get_weather", {"city": 'Paris "x" </b>', "days": 3, "unit": "C"}), ("get_time", {})]
WRITTEN = sorted(set(FAMILIES) - {"functiongemma"})  # its arguments are described by no grammar


def source(format: ChatFormat, tools=TOOLS) -> str:
    """The grammar of an answer that has to be calls."""
    request = ChatRequest.read([{"role": "user", "content": "Hi"}], tools=tools, tool_choice="required")
    grammar = answer_grammar(request, format, "", SPECIAL)
    assert grammar is not None
    return grammar.source


def allows(source: str, text: str) -> bool:
    matcher = COMPILER.lexers.of(source, COMPILER).matcher.deep_copy()
    tokens = TOKENIZER.tokenize(text, add_special=False)
    return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()


def written(name: str, *calls: tuple[str, dict]) -> str:
    """Return the text that a family's template writes for calls."""
    given = [
        {"id": f"12345670{i}", "function": {"name": tool, "arguments": arguments}}
        for i, (tool, arguments) in enumerate(calls)
    ]
    template, tools = with_traits(ChatTemplate(FAMILIES[name])), read_tools(TOOLS)
    chat = read_messages([{"role": "user", "content": "Hi"}, {"role": "assistant", "tool_calls": given}])
    prompt = template.render(chat[:1], tools)
    return template.render(chat, tools, add_generation_prompt=False)[len(prompt) :].removesuffix("<|im_end|>\n").strip()


@pytest.mark.parametrize("name", WRITTEN)
def test_calls_rendered_by_templates_are_allowed(name):
    grammar = source(FORMATS[name])
    for calls in (CALLS[:1], CALLS[1:], CALLS, CALLS[::-1]):
        text = written(name, *calls)
        assert allows(grammar, text), text


@pytest.mark.parametrize("name", ["hermes", "qwen3-coder", "gemma4", "lfm2"])
def test_a_wrong_schema_is_named_by_its_tool(name):
    for schema, says in (({"required": 5}, "Expected array"), ({"properties": {"a": {"$ref": "#/b"}}}, "'/b'")):
        with pytest.raises(RequestError, match=f"^tools: parameters of 'wrong': .*{says}"):
            source(FORMATS[name], [*TOOLS, {"name": "wrong", "parameters": schema}])
