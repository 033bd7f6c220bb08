"""A text without a place to cut it takes time in proportion to its length, not to the square of it."""

import time

import pytest

from tokenizer_fixtures import small


@pytest.mark.parametrize("unit", ["  ", "a", "ab\u0301"])
@pytest.mark.parametrize(
    "name", ["spm", "bpe", "gemma4", "wpm", "unigram", "rwkv", "plamo2", "hybriddna", "whitespace"]
)
def test_one_long_run(name: str, unit: str) -> None:
    tokenizer = small(name)
    tokenizer.tokenize(unit)
    seconds = []
    for n in (5_000, 40_000):
        start = time.process_time()
        ids = tokenizer.tokenize(unit * (n // len(unit)))
        tokenizer.detokenize(ids)
        seconds.append(time.process_time() - start)
    assert seconds[1] < 30 * seconds[0] + 0.1  # 8 times in proportion, 64 times for the square
