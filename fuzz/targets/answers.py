"""Chat answers: equal parts for any split of the text, no loss of plain text, linear time."""

import json
from collections.abc import Iterable

from chat_answers import ANSWERS, CALL
from fuzz.draw import Draw
from fuzz.growth import check_linear, chosen
from pumice.chat import FORMATS
from pumice.chat.formats import ChatFormat
from pumice.chat.messages import read_tools
from pumice.chat.parser import ChatParser

MODULES = (
    "pumice.chat.parser",
    "pumice.chat.pattern",
    "pumice.chat.incoming",
    "pumice.chat.calls",
    "pumice.chat.schemas",
)
MAX_LEN = 600
NAMES = sorted(FORMATS)
_WORDS = {word for form in FORMATS.values() for word in (*form.literals, *form.silent_for(["get_weather"]))}
TOKENS = tuple(
    text.encode()
    for text in (*sorted(_WORDS), CALL, "get_weather", "city", "functions.f:0", '"', "\\", "[", "]", "{", "}", "<", ">")
)
TOOLS = read_tools(
    [
        {
            "name": "get_weather",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string"},
                    "days": {"type": "integer"},
                    "when": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                    "list": {"type": "array", "items": {"$ref": "#/$defs/item"}},
                },
                "$defs": {"item": {"type": "number"}},
            },
        },
        {"name": "f"},
    ]
)


def seeds() -> Iterable[bytes]:
    for format, opening, text, _ in ANSWERS.values():
        data = bytes([NAMES.index(format), 1, len(opening), 1]) + opening.encode() + text.encode()
        if len(data) <= MAX_LEN:
            yield data


def check(data: bytes) -> None:
    draw = Draw(data)
    format = FORMATS[draw.choice(NAMES)]
    tools = TOOLS if draw.flag() else []
    length, cut = draw.below(64), 1 + draw.below(16)
    opening = draw.bytes(length).decode(errors="replace")
    text = draw.rest().decode(errors="replace")
    whole = _parts(format, tools, opening, [text])
    pieces = [text[start : start + cut] for start in range(0, len(text), cut)]
    assert _parts(format, tools, opening, pieces) == whole
    for kind, value in whole:
        if kind == "call":
            json.dumps(value)
        else:
            value.encode()
    kept = "".join(value for kind, value in whole if kind != "call")
    marks = [*format.reasoning, *format.silent_for(["get_weather", "f"])]
    if not tools and not opening and not any(mark in text for mark in marks):
        assert kept == text
    if chosen(data, 128):
        begin, unit = text[: len(text) // 2], text[len(text) // 2 :]
        check_linear(lambda text_of_size: _parts(format, tools, opening, _cut(text_of_size)), begin, unit)


def _cut(text: str) -> list[str]:
    return [text[start : start + 64] for start in range(0, len(text), 64)]


def _parts(format: ChatFormat, tools: list, opening: str, pieces: list[str]) -> list[tuple]:
    """Return the parts of an answer with adjacent texts joined."""
    parser = ChatParser(format, tools, opening)
    parts = [part for piece in pieces for part in parser.push(piece)] + parser.finish()
    joined: list[tuple] = []
    texts: list[str] = []
    for kind, value in parts:
        if texts and joined[-1][0] != kind:
            joined[-1] = (joined[-1][0], "".join(texts))
            texts = []
        if kind == "call":
            joined.append((kind, [value.name, dict(value.arguments), value.id]))
        else:
            if not texts:
                joined.append((kind, ""))
            texts.append(value)
    if texts:
        joined[-1] = (joined[-1][0], "".join(texts))
    return joined
