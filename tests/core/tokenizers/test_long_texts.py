"""A text without a place to cut it takes time in proportion to its length, not to the square of it."""

import math

import pytest

from tokenizer_fixtures import small
from waiting import seconds_of


@pytest.mark.parametrize("unit", ["  ", "a", "ab\u0301"])
@pytest.mark.parametrize(
    "name", ["spm", "bpe", "gemma4", "wpm", "unigram", "rwkv", "plamo2", "hybriddna", "whitespace"]
)
def test_one_long_run(name: str, unit: str) -> None:
    tokenizer = small(name)
    tokenizer.tokenize(unit)

    def there_and_back(n: int) -> None:
        tokenizer.detokenize(tokenizer.tokenize(unit * (n // len(unit))))

    most = 30 * seconds_of(lambda: there_and_back(5_000), math.inf) + 0.1  # 8 in proportion, 64 for the square
    assert seconds_of(lambda: there_and_back(40_000), most) < most
