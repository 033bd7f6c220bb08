"""Chats that end, and tool calls: required ones, which a grammar enforces, and free ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pumice.check.findings import Finding, Level, Subject
from pumice.check.template import CITIES, TOOL, TOOL_NAME
from pumice.errors import PromptTooLongError, PumiceError
from pumice.model import Model

QUESTION = "What is the capital of France? Answer in one short sentence."
MOST_TOKENS = 256


@dataclass(frozen=True)
class Calls:
    """The number of questions, and for how many of them the model called the tool with the city asked for."""

    n: int
    right: int
    called: int


def check_answers(subject: Subject, n_calls: int = 1) -> Iterator[Finding]:
    """Ask a question, whose answer has to end, and ``n_calls`` questions for a tool, required and free."""
    with subject.load() as model:
        if not model.template.exists or not model.facts.generates or model.facts.fills_masks:
            return
        try:
            answer = model.chat([{"role": "user", "content": QUESTION}], temperature=0, max_tokens=MOST_TOKENS)
        except PumiceError as error:
            yield Finding("error", "chat", str(error))
            return
        shown = " ".join((answer.message.content or "").split())[:60]
        if answer.finish_reason == "length":
            message = f"the answer to a short question does not end within {MOST_TOKENS} tokens: {shown!r} ..."
            yield Finding("warning", "chat", message)
        else:
            yield Finding("note", "chat", f"the answer ends by itself: {shown!r}")
        required, free = (count_calls(model, choice, min(n_calls, len(CITIES))) for choice in ("required", "auto"))
        level: Level = "error" if required.called < required.n else "note"
        results = [
            f"{kind}: {calls.called} of {calls.n} called, {calls.right} right"
            for kind, calls in (("required", required), ("free", free))
        ]
        yield Finding(level, "tool calls", "; ".join(results))


def count_calls(model: Model, choice: str, n: int) -> Calls:
    """Ask for the weather of ``n`` cities, greedily, and count the calls; ``choice``: required or auto.

    A question whose answer does not fit into the context is not counted.
    """
    asked = called = right = 0
    for city in CITIES[:n]:
        question = [{"role": "user", "content": f"What is the weather in {city} now?"}]
        try:
            answer = model.chat(question, tools=[TOOL], tool_choice=choice, temperature=0, max_tokens=MOST_TOKENS)
        except PromptTooLongError:
            continue  # nothing is known
        except PumiceError:
            asked += 1
            continue
        if answer.finish_reason == "context_full":
            continue
        asked += 1
        calls = answer.message.tool_calls or []
        cities = [str(call.arguments.get("city", "")) for call in calls if call.name == TOOL_NAME and not call.partial]
        called += bool(cities)
        right += any(city.lower() in named.lower() for named in cities)
    return Calls(asked, right, called)
