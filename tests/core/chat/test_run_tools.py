"""Python functions as tools: their schemas, and chats in which they are run."""

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field

import pumice
from scripted_calls import call

USER = {"role": "user", "content": "Hi"}


def weather(city: str, days: Annotated[int, Field(ge=1)] = 1, unit: Literal["C", "F"] = "C") -> dict:
    """Tell the weather.

    Of one city.

    Args:
        city: Name of the city,
            in English.
        days (int): Number of days.

    Returns:
        The weather.
    """
    return {"city": city, "days": days, "unit": unit}


def test_a_schema_is_made_of_annotations_and_docstring():
    function = pumice.Tool.of(weather).definition["function"]
    assert function["description"] == "Tell the weather.\n\nOf one city."
    assert function["parameters"] == {
        "type": "object",
        "additionalProperties": False,
        "required": ["city"],
        "properties": {
            "city": {"type": "string", "description": "Name of the city, in English."},
            "days": {"type": "integer", "default": 1, "minimum": 1, "description": "Number of days."},
            "unit": {"type": "string", "enum": ["C", "F"], "default": "C"},
        },
    }


@dataclass
class Place:
    """A place on a map."""

    x: int
    y: int = 0


class Unit(Enum):
    METRES = "m"
    MILES = "mi"


def route(
    schema: Path,
    places: list[Place],
    unit: Unit = Unit.METRES,
    tags: list[str] = ["fast"],  # noqa: B006
    most: int | None = None,
):
    """Find a route.

    Args:
        places: Places on the way.
    """
    assert isinstance(schema, Path)
    return {"file": schema, "x": [place.x + place.y for place in places], "unit": unit, "tags": tags, "most": most}


def test_plain_annotations_are_read_and_converted_without_pydantic(tmp_path):
    parameters = pumice.Tool.of(route).parameters
    assert parameters["required"] == ["schema", "places"]
    properties = parameters["properties"]
    assert properties["places"] == {
        "type": "array",
        "items": {"$ref": "#/$defs/Place"},
        "description": "Places on the way.",
    }
    assert [properties[name]["default"] for name in ("unit", "tags", "most")] == ["m", ["fast"], None]
    assert parameters["$defs"]["Unit"] == {"type": "string", "enum": ["m", "mi"]}
    tool = pumice.Tool.of(route)
    given = {"schema": "a.json", "places": [{"x": "1"}, {"x": 2, "y": 3}], "unit": "mi", "most": 4}
    answer = json.loads(tool.answer(pumice.ToolCall("route", given)))
    assert answer == {"file": "a.json", "x": [1, 5], "unit": "mi", "tags": ["fast"], "most": 4}
    for wrong, problem in [({"places": [{"x": "far"}]}, "places[0].x: Expected `int`"), ({"plaecs": []}, "`plaecs`")]:
        answer = tool.answer(pumice.ToolCall("route", {**given, **wrong}))
        assert answer.startswith("Error: wrong arguments for route: ")
        assert problem in answer
    (tmp_path / "pydantic.py").write_text("raise ImportError('not here')")
    code = (
        "import json, sys, pumice\ndef add(a: int, b: float = 1) -> float: return a + b\n"
        "print(pumice.Tool.of(add).answer(pumice.ToolCall('add', {'a': '2'})))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout == "3\n"


class Person(BaseModel):
    name: str


def greet(person: Person, when: date | str = "now"):
    return {"greeted": person, "when": when}


def test_classes_of_pydantic_are_parameters_and_results():
    tool = pumice.Tool.of(greet)
    assert tool.parameters["$defs"]["Person"]["required"] == ["name"]
    answer = tool.answer(pumice.ToolCall("greet", {"person": {"name": "Ann"}}))
    assert json.loads(answer) == {"greeted": {"name": "Ann"}, "when": "now"}
    assert "person.name: Field required" in tool.answer(pumice.ToolCall("greet", {"person": {}}))


def test_results_are_text_whatever_they_are():
    results = ["text", b"bytes", {1: date(2026, 1, 2)}, {(1, 2): 3}, ["a\ud800"], {"a": {1}}, 1.5]
    tools = [pumice.Tool("t", "", {}, lambda result=result: result) for result in results]
    texts = [tool.answer(pumice.ToolCall("t", {})) for tool in tools]
    assert texts == ["text", "bytes", '{"1":"2026-01-02"}', '{"(1, 2)":3}', '["a\ud800"]', '{"a":[1]}', "1.5"]


def misspelled(value: "int |"):  # noqa: F722
    pass


def unknown(value: "pumice.nope"):
    pass


def everything(*values: int):
    pass


def opaque(value: pytest.FixtureRequest):
    pass


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (lambda city: city, "has no name"),
        (misspelled, "no schema can be made of its signature: SyntaxError"),
        (unknown, "no schema can be made of its signature: AttributeError: module 'pumice' has no attribute 'nope'"),
        (everything, "the parameter \\*values: int cannot be given by name"),
        (opaque, "tools: opaque: no schema can be made of its signature"),
    ],
)
def test_functions_without_a_schema_are_refused(function, problem):
    with pytest.raises(pumice.RequestError, match=problem):
        pumice.Tool.of(function)


def test_calls_are_run_until_the_model_answers_in_text(model):
    script = [call("weather", city="Paris", days=2), call("weather", city="Rome"), "Sunny."]
    completion = model.chat([USER], tools=[weather], run_tools=True, script=script)
    assert completion.message.content == "Sunny."
    assert [message.role for message in completion.messages] == ["assistant", "tool", "assistant", "tool", "assistant"]
    first = completion.messages[1]
    assert json.loads(first.content) == {"city": "Paris", "days": 2, "unit": "C"}
    assert first.tool_call_id == completion.messages[0].tool_calls[0].id
    assert completion.usage.completion_tokens > len("Sunny.") * 3
    model.chat([USER, *completion.messages, USER], script=["ok"])  # they are messages of the next turn


def test_turns_are_bounded_and_the_last_calls_are_returned(model):
    count = []
    completion = model.chat(
        [USER],
        tools=[pumice.Tool("again", "", {"type": "object"}, lambda: count.append(1))],
        run_tools=True,
        max_tool_turns=3,
        script=[call("again")],
    )
    assert len(count) == 2
    assert completion.finish_reason == "tool_calls"
    assert completion.message.tool_calls[0].name == "again"


def test_the_model_reads_errors(model):
    def fail(reason: str) -> str:
        raise KeyError(reason)

    completion = model.chat([USER], tools=[fail], run_tools=True, script=[call("fail", reason="x"), "Sorry."])
    assert completion.messages[1].content == "Error: KeyError: 'x'"
    assert completion.message.content == "Sorry."
    wrong = pumice.Tool.of(weather).answer(pumice.ToolCall("weather", {"city": "Rome", "days": 0, "x": 1}))
    assert "days: Input should be greater than or equal to 1" in wrong
    assert "x: Extra inputs are not permitted" in wrong


def test_functions_of_a_coroutine_may_be_async(model):
    async def slow(city: str) -> str:
        await asyncio.sleep(0)
        return f"in {city}"

    async def approve(call) -> bool:
        return True

    script = [call("slow", city="Paris") + call("weather", city="Rome"), "Done."]
    completion = asyncio.run(model.achat([USER], tools=[slow, weather], run_tools=approve, script=script))
    assert [message.content[:8] for message in completion.messages[1:3]] == ["in Paris", '{"city":']
    with pytest.raises(pumice.RequestError, match="slow: an async function needs achat"):
        model.chat([USER], tools=[slow], run_tools=True, script=script)


@pytest.mark.parametrize("answer", ["no", 1, None, [True]])
def test_only_true_runs_a_call(model, answer):
    async def asked(call):
        return answer

    ran = []
    tool = pumice.Tool("go", "", {"type": "object"}, lambda: ran.append(1))
    script = [call("go"), "No."]
    model.chat([USER], tools=[tool], run_tools=lambda call: answer, script=script)
    asyncio.run(model.achat([USER], tools=[tool], run_tools=asked, script=script))
    assert ran == []


def test_errors_keep_the_calls_and_results_before_them(model):
    asked = []

    def once(call):
        asked.append(call)
        return True if len(asked) == 1 else 1 / 0

    options = {"tools": [weather], "script": [call("weather", city="Paris"), call("weather", city="Rome")]}
    with pytest.raises(ZeroDivisionError) as caught:
        model.chat([USER], run_tools=once, **options)
    assert [message.role for message in caught.value.messages] == ["assistant", "tool", "assistant"]
    assert json.loads(caught.value.messages[1].content)["city"] == "Paris"
    asked.clear()
    with pytest.raises(ZeroDivisionError) as caught:
        asyncio.run(model.achat([USER], run_tools=once, **options))
    assert [message.role for message in caught.value.messages] == ["assistant", "tool", "assistant"]


def test_results_fit_the_context(model):
    def read() -> str:
        return "é" * 20_000

    completion = model.chat([USER], tools=[read], run_tools=True, script=[call("read") * 2, "Long."])
    assert completion.message.content == "Long."
    results = [message.content for message in completion.messages[1:3]]
    assert all("[cut: the result has 20000 characters, " in result and len(result) < 1000 for result in results)


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError(), StopIteration()])
def test_a_tool_cannot_end_the_chat(model, error):
    def leave():
        raise error

    async def aleave():
        raise error

    script = [call("leave"), "Left."]
    problem = f"Error: {type(error).__name__}"
    assert model.chat([USER], tools=[leave], run_tools=True, script=script).messages[1].content.startswith(problem)
    for function in [leave] if isinstance(error, StopIteration) else [leave, aleave]:
        tool = pumice.Tool("leave", "", {"type": "object"}, function)
        completion = asyncio.run(model.achat([USER], tools=[tool], run_tools=True, script=script))
        assert completion.messages[1].content.startswith(problem)


def test_cancelling_the_task_cancels_async_functions_and_keeps_results(model):
    ended, kept = [], []

    async def wait():
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(1)

    async def main():
        async def cancel():
            task.cancel()

        async def chat():
            try:
                await model.achat([USER], tools=[wait, cancel], run_tools=True, script=[call("wait") + call("cancel")])
            except asyncio.CancelledError as error:
                kept.extend(error.messages)
                raise

        task = asyncio.create_task(chat())
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert ended == [1]
    assert [message.name for message in kept] == ["", "cancel"]


ALLOWED = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "weather"}]}


@pytest.mark.parametrize("choice", ["required", "weather", ALLOWED])
def test_a_required_call_is_the_first_answer_only(model, choice):
    script = [call("weather", city="Paris"), "Sunny."]
    completion = model.chat([USER], tools=[weather], run_tools=True, tool_choice=choice, script=script)
    assert [message.role for message in completion.messages] == ["assistant", "tool", "assistant"]
    assert completion.message.content == "Sunny."


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"run_tools": True}, "run_tools needs functions"),
        ({"run_tools": 1, "tools": [weather]}, "run_tools must be true, false or a function, not 1"),
        ({"run_tools": True, "tools": [weather], "max_tool_turns": 0}, "max_tool_turns must be an integer, at least 1"),
    ],
)
def test_wrong_arguments_are_refused(model, options, problem):
    with pytest.raises(pumice.RequestError, match=problem):
        model.chat([USER], script=["x"], **options)
