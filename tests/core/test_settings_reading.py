"""Settings of files and calls, read into dataclasses by the annotations of their fields."""

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from annotated_types import Ge, Le

from pumice.errors import ConfigError
from pumice.options.reading import SettingsReader


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


def check_even(value: int) -> None:
    if value % 2:
        raise ValueError("an even number")


@dataclass
class Inner:
    SHORTHAND = "name"

    name: str
    weights: list[Annotated[float, Ge(0), Le(1)]] = field(default_factory=list)


@dataclass
class Outer:
    colour: Colour = Colour.RED
    folder: Path = Path()
    pair: tuple[int, str] = (0, "")
    row: tuple[int, ...] = ()
    even: Annotated[int, check_even] = 0
    limit: Annotated[int, Ge(1)] | None = None
    switch: Literal["on", "off"] = "off"
    inner: dict[str, Inner] = field(default_factory=dict)
    old_name: str = field(default="", metadata={"key": "newName"})
    anything: Any = None


def test_values_are_those_that_files_can_have():
    data = {
        "colour": "blue", "folder": "a/b", "pair": [1, "x"], "row": [1, 2, 3], "even": 4, "limit": 2, "switch": True,
        "inner": {"a": "text", "b": {"name": "n", "weights": [0, 1]}}, "newName": "n", "anything": [{}],
    }  # fmt: skip
    read = SettingsReader("file").record(Outer, data)
    inner = {"a": Inner("text"), "b": Inner("n", [0.0, 1.0])}
    assert read == Outer(Colour.BLUE, Path("a/b"), (1, "x"), (1, 2, 3), 4, 2, "on", inner, "n", [{}])
    assert all(type(weight) is float for weight in read.inner["b"].weights)
    assert SettingsReader("file").record(Outer, {"limit": None}) == Outer()


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({"colour": "green"}, "colour: should be one of red, blue, not 'green'"),
        ({"pair": [1]}, "pair: should be a list of 2 values, not [1]"),
        ({"pair": [1, 2]}, "pair.1: should be a string, not 2"),
        ({"row": [1, "2"]}, "row.1: should be an integer, not '2'"),
        ({"even": 3}, "even: should be an even number, not 3"),
        ({"even": True}, "even: should be an integer, not true"),
        ({"limit": 0}, "limit: should be an integer, at least 1, not 0"),
        ({"switch": 1}, "switch: should be one of on, off, not 1"),
        ({"inner": {"a": {}}}, "inner.a: the key 'name' is missing"),
        ({"inner": {"a": 1}}, "inner.a: should be a mapping, not 1"),
        ({"inner": {1: "a"}}, "inner: keys should be strings, not 1"),
        ({"inner": {"a": {"name": "n", "weights": [2]}}}, "inner.a.weights.0: should be a number, at least 0 and at"),
        ({"old_name": "n"}, "unknown key 'old_name'"),
        ({"inner": {"a": {"nmae": "n"}}}, "unknown key 'inner.a.nmae'; did you mean 'name'?"),
        ([], "should be a mapping, not []"),
    ],
)
def test_a_wrong_value_is_named_with_its_key(data, problem):
    with pytest.raises(ConfigError) as caught:
        SettingsReader("file").record(Outer, data)
    assert str(caught.value).startswith(f"file: {problem}")


def test_a_layer_may_lack_keys_and_a_file_of_others_may_have_more():
    partial = SettingsReader("file", partial=True)
    assert partial.values(Outer, {"inner": {"a": {"weights": [1]}}}) == {"inner": {"a": {"weights": [1.0]}}}
    lenient = SettingsReader("file", ignore_unknown=True)
    assert lenient.record(Inner, {"name": "n", "theirs": 1}) == Inner("n")
