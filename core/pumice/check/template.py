"""The chat template: renders each kind of message, ends answers, and writes tokens that the vocabulary has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pumice.chat import Chat, ChatRequest
from pumice.chat.template import KEY, has_template
from pumice.check.findings import Finding, Subject
from pumice.check.vocabulary import SPECIAL
from pumice.errors import PumiceError, RequestError
from pumice.tokenizers import Tokenizer
from pumice.tokenizers.vocabulary import PREFIX
from pumice.wording import counted_as

WHERE = "chat template"
SYSTEM, QUESTION, ANSWER, SECOND = "SYSTEMTEXT", "QUESTIONTEXT", "ANSWERTEXT", "SECONDTEXT"
"""Contents of messages; no template has them."""

CITIES = (
    "Oslo", "Paris", "Lima", "Cairo", "Tokyo", "Delhi", "Rome", "Quito", "Hanoi", "Accra", "Berlin", "Madrid", "Dublin",
    "Vienna", "Athens", "Ottawa", "Nairobi", "Lisbon", "Warsaw", "Seoul",
)  # fmt: skip
TOOL_NAME = "get_weather"
TOOL = {
    "type": "function",
    "function": {
        "name": TOOL_NAME,
        "description": "Return the weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "enum": list(CITIES)}},
            "required": ["city"],
        },
    },
}
CALL = {"id": "123456789", "type": "function", "function": {"name": TOOL_NAME, "arguments": {"city": "Oslo"}}}


def check_template(subject: Subject) -> Iterator[Finding]:
    """Find messages that are lost, answers without an end, and spellings that are no tokens."""
    metadata = subject.file.metadata
    try:
        tokenizer = subject.tokenizer
    except PumiceError:
        return  # found already
    if tokenizer is None or not has_template(metadata):
        return
    formats = subject.registry.chat_formats
    chat = Chat(metadata, tokenizer, formats.without_conflicts(formats))
    try:
        chat.text(ChatRequest.read([_user(QUESTION)]))
    except PumiceError as error:
        yield Finding("error", WHERE, str(error).removeprefix("the chat template "))
        return
    yield from _contents(chat)
    if not chat.capabilities().get("supports_system_role") and "raise_exception" not in metadata[KEY]:
        message = "leaves out the system message, which Pumice therefore writes into the user's first message"
        yield Finding("warning", WHERE, message)
    yield from _ends(chat, tokenizer, metadata)


def _contents(chat: Chat) -> Iterator[Finding]:
    """Find contents that the template leaves out. One that it refuses, it does not lose."""
    turns = [_user(QUESTION), _assistant(ANSWER), _user(SECOND)]
    called = [_user(QUESTION), {**_assistant(""), "tool_calls": [CALL]}, {"role": "tool", "content": ANSWER}]
    tools = chat.capabilities().get("supports_tool_calls", False)
    cases: list[tuple[str, list[dict[str, Any]], Sequence[str]]] = [
        ("the user's message", [_user(QUESTION)], [QUESTION]),
        ("the system message", [{"role": "system", "content": SYSTEM}, _user(QUESTION)], [SYSTEM, QUESTION]),
        ("a message of an earlier turn", turns, [QUESTION, ANSWER, SECOND]),
        *([("the result of a tool", called, [QUESTION, ANSWER])] if tools else []),
    ]
    for what, messages, contents in cases:
        try:
            text = chat.text(ChatRequest.read(messages))
        except RequestError:
            continue
        places = [text.find(content) for content in contents]
        if min(places) < 0:
            yield Finding("error", WHERE, f"leaves out {what}")
        elif places != sorted(places):
            yield Finding("error", WHERE, f"changes the order of messages: {what} is in the wrong place")
    begun, closed = (
        chat.text(ChatRequest.read([_user(QUESTION)], add_generation_prompt=begin)) for begin in (True, False)
    )
    if begun == closed and SPECIAL.search(begun):
        message = "add_generation_prompt changes nothing, so the model has to begin the assistant's message itself"
        yield Finding("warning", WHERE, message)


def _ends(chat: Chat, tokenizer: Tokenizer, metadata: Mapping[str, Any]) -> Iterator[Finding]:
    """Compare the tokens after an answer with those that end a generation."""
    text = chat.text(ChatRequest.read([_user(QUESTION), _assistant(ANSWER), _user(SECOND)]))
    unknown = sorted(mark for mark in set(SPECIAL.findall(text)) if len(_tokens(tokenizer, mark)) != 1)
    if unknown:
        what = f"writes {', '.join(unknown[:3])}, which the vocabulary does not have as {counted_as(1, 'token')}"
        yield Finding("error", WHERE, f"{what}: the model reads it as text")
    if not SPECIAL.search(text):
        return  # a format of plain text, which no token ends
    between = text.partition(ANSWER)[2].partition(SECOND)[0]
    tokens = _tokens(tokenizer, between)
    ending = next((token for token in tokens if token in tokenizer.eog), None)
    special = next((token for token in tokens if token in tokenizer.vocabulary.special), None)
    if ending is None:
        first = tokenizer.token_text(special) if special is not None else between.strip()[:20]
        message = f"ends an answer with {first!r}, at which generation does not stop"
        yield Finding("error" if special is not None else "warning", WHERE, message)
    elif ending not in {tokenizer.eos, *(metadata.get(f"{PREFIX}{name}_token_id") for name in ("eot", "eom"))}:
        named = f"eos_token_id names {tokenizer.token_text(tokenizer.eos)!r}" if tokenizer.eos is not None else ""
        message = (
            f"an answer ends with {tokenizer.token_text(ending)!r} ({ending}) in the chat template, but {named}; "
            "programs that do not know the spelling generate on"
        )
        yield Finding("warning", f"{PREFIX}eos_token_id", message)


def _tokens(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.tokenize_following(text) if text else []


def _user(content: str) -> dict[str, Any]:
    return {"role": "user", "content": content}


def _assistant(content: str) -> dict[str, Any]:
    return {"role": "assistant", "content": content}
