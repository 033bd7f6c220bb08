"""Parts of messages."""

import json

import pytest

from pumice.wording import counted_as, did_you_mean, json_problem, show_python, show_value, unknown_name


def test_values_of_requests_are_shown_in_jsons_words():
    assert [show_value(value) for value in (None, True, False, 1, 0.5)] == ["null", "true", "false", "1", "0.5"]
    assert show_value({"a": [None, True], "b": (False,)}) == "{'a': [null, true], 'b': (false,)}"
    assert show_value("None") == "'None'"


def test_values_are_shown_in_few_characters_however_large_or_deep():
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep, None]
    for value in (deep, "a" * 1_000_000, [None] * 1_000_000, dict.fromkeys(range(100000), True), 10**1000):
        assert len(show_value(value)) <= 60
    assert len(show_value([None] * 9, 20)) == 20


def test_integers_of_more_digits_than_python_writes_are_shown_by_their_bits():
    assert show_value(-(10**5000)) == "an integer of 16610 bits"
    assert show_value({"n": 1 << 99999}) == "{'n': an integer of 100000 bits}"


def test_values_of_python_calls_are_shown_in_pythons_words():
    assert show_python({"a": [None, True]}) == "{'a': [None, True]}"
    assert show_python(b"abc") == "b'abc'"
    assert show_python([1 << 99999]) == "[an integer of 100000 bits]"
    assert len(show_python("a" * 1000)) == 60


def test_numbers_have_the_noun_that_fits_them():
    assert [counted_as(number, "chunk") for number in (0, 1, 2)] == ["0 chunks", "1 chunk", "2 chunks"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("9" * 5000, "an integer has too many digits"),
        ("{", "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
    ],
)
def test_problems_of_json_are_one_line_without_advice_for_programs(text, problem):
    with pytest.raises(ValueError) as caught:
        json.loads(text)
    assert json_problem(caught.value) == problem


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("cuda", ["cpu", "vulkan"], "vulkan"),
        ("metal", ["cpu", "mlx"], "mlx"),
        ("ctx_size", ["n_ctx", "fit_ctx"], "n_ctx"),
        ("mirostat_mode", ["mirostat", "mirostat_eta", "mirostat_tau"], "mirostat"),
        ("temp", ["temperature", "top_p"], "temperature"),
        ("max_new_tokens", ["max_tokens", "min_tokens"], "max_tokens"),
    ],
)
def test_names_of_other_programs_are_known(name, known, meant):
    assert did_you_mean(name, known) == f"; did you mean {meant!r}?"


def test_a_suggestion_is_not_buried_under_a_list():
    many = [f"name{i}" for i in range(30)]
    assert unknown_name("thing", "nam", many) == "unknown thing 'nam'; did you mean 'name0'?"
    assert unknown_name("thing", "xyz", many).count("name") == 30
    assert unknown_name("thing", "nam", many[:2]) == "unknown thing 'nam'; did you mean 'name0'? (known: name0, name1)"
