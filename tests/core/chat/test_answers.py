"""Answers as published templates write them, read as llama.cpp reads them, whole and in single characters."""

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from chat_answers import ANSWERS
from pumice.chat import FORMATS
from pumice.chat.messages import read_tools
from pumice.chat.parser import ChatParser

FIXTURE = json.loads((Path(__file__).parents[2] / "fixtures" / "chat_answers.json").read_text())
TOOLS = read_tools(FIXTURE["tools"])
CASES = {
    f"{name}-{i}": (template["format"], answer)
    for name, template in FIXTURE["templates"].items()
    for i, answer in enumerate(template["answers"])
}


def read(format: str, opening: str, chunks: Iterable[str]) -> dict[str, object]:
    parser = ChatParser(FORMATS[format], TOOLS, opening)
    parts = [part for chunk in chunks for part in parser.push(chunk)] + parser.finish()
    texts = {name: "".join(part[1] for part in parts if part[0] == name).strip() for name in ("content", "reasoning")}
    return {**texts, "calls": [[part[1].name, part[1].arguments] for part in parts if part[0] == "call"]}


@pytest.mark.parametrize("name", CASES)
def test_an_answer_is_read_as_llama_cpp_reads_it(name):
    format, answer = CASES[name]
    expected = {key: answer[key] for key in ("content", "reasoning", "calls")}
    assert read(format, answer["opening"], [answer["text"]]) == expected
    assert read(format, answer["opening"], answer["text"]) == expected


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_what_is_written_after_reasoning_that_is_left_out_is_what_models_write(name):
    """A mark that begins another message, or none."""
    format = FORMATS[name]
    answers = [*CASES.values(), *((format, {"opening": o, "text": text}) for format, o, text, _ in ANSWERS.values())]
    texts = [answer["text"] for known, answer in answers if known == name]
    rests = [text.partition(format.reasoning[1])[2] for text in texts if format.reasoning[0] in text]
    marks = {mark for mark in format.silent for rest in rests if rest.startswith(mark) and "assistant" in mark}
    assert not rests or format.after_reasoning.strip() in (marks or {""})
