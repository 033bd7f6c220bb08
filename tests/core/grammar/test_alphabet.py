"""Characters that a regular expression cannot tell apart: Python's re cannot either."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pumice.grammar.alphabet import UnknownRule, representatives, sets_of_pattern
from random_schemas import random_pattern

CHARACTERS = 'aeiouxyzAEZ059_-. /+!~"\\\n\t\x7f\x85\xa0àéÿĀ一鿿ん\u2028\u3000😀\ue000'


@given(st.integers(0, 2**32 - 1))
def test_a_text_matches_as_that_of_representatives_does(seed):
    rng = np.random.default_rng(seed)
    pattern = random_pattern(rng)
    table = representatives(sets_of_pattern(pattern))
    expression = re.compile(pattern.removesuffix("$") + r"\Z", re.ASCII)
    for _ in range(100):
        text = "".join(rng.choice(list(CHARACTERS), int(rng.integers(0, 8))))
        same = "".join(chr(table[ord(character)]) for character in text)
        assert bool(expression.match(text)) == bool(expression.match(same)), (pattern, text, same)


@pytest.mark.parametrize(
    "pattern",
    [
        *(r"\bword", r"\p{L}+", "(?i)a", "(?=a)", "(?P<name>a)", "[[:alpha:]]", "[a-z&&[^b]]", "[a--b]", r"\ud83d"),
        *("[]a]", "[a", "a\\", r"\u{41}", r"\x4", r"\cA", r"\1", r"[\w-z]", r"\<"),
    ],
)
def test_unknown_pattern_syntax_is_reported(pattern):
    with pytest.raises(UnknownRule):
        sets_of_pattern(pattern)
