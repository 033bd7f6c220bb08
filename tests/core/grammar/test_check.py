"""Grammars are compiled in a worker first, which may crash: the next grammar finds another worker."""

import os
import signal

import pytest

from pumice import RequestError, TooExpensiveError
from pumice.grammar import GrammarChecker, grammar_source
from pumice.isolation import CallLimits, WorkerPool
from tokenizer_fixtures import small
from waiting import wait_until

CRASHES = "start: r0\n" + "".join(f'r{i}: "a" r{i + 1}\n' for i in range(10_000)) + 'r10000: "b"'
ENDLESS = "start: X\nX: " + '"a"? ' * 60_000


@pytest.fixture(scope="module")
def pool():
    pool = WorkerPool("compiling the grammar", CallLimits(cpu_seconds=1), 1)
    yield pool
    pool.close()


@pytest.fixture
def checker(pool) -> GrammarChecker:
    return GrammarChecker(pool)


@pytest.fixture(scope="module")
def tokenizer():
    return small("bpe")


@pytest.mark.parametrize("given", [{"grammar": 'root ::= "a" [b-d]+'}, {"regex": "a{1,9}/b"}, {"choices": ["a", "b"]}])
def test_a_grammar_that_compiles_is_sound(given, checker, tokenizer):
    checker.check(grammar_source(**given), lambda: tokenizer)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("start: nowhere", "unknown name"),
        (grammar_source(json_schema={"type": "text"}), "type"),
        (
            grammar_source(json_schema={"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}),
            "may lead only to itself",
        ),
        (grammar_source(json_schema={"$ref": "#"}), "may lead only to itself"),
        ("start: " + '"a"? ' * 1500, "items"),  # found with the first masks
    ],
)
def test_a_grammar_that_does_not_says_why(source, message, checker, tokenizer):
    for _ in range(2):
        with pytest.raises(RequestError) as error:
            checker.check(source, lambda: tokenizer)
        assert message in str(error.value)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(("source", "message"), [(CRASHES, "crashed"), (ENDLESS, "seconds of processor time")])
def test_a_grammar_that_crashes_its_compiler_ends_a_worker_alone(source, message, checker, tokenizer):
    with pytest.raises(TooExpensiveError, match=message):
        checker.check(source, lambda: tokenizer)
    checker.check('start: "a"', lambda: tokenizer)


def test_so_does_a_part_of_one(checker):
    with pytest.raises(TooExpensiveError, match="crashed"):
        checker.problems([CRASHES])


def test_tokens_are_named_by_their_spelling(checker, tokenizer):
    names = [tokenizer.token_text(token) for token in sorted(tokenizer.vocabulary.hidden)]
    checker.check(f'start: "a" {next(name for name in names if name.startswith("<"))} "<b>"', lambda: tokenizer)
    with pytest.raises(RequestError, match="special token"):
        checker.check('start: "a" <nowhere>', lambda: tokenizer)


def test_a_worker_that_is_killed_is_no_verdict(checker, pool, tokenizer):
    checker.check('start: "c"', lambda: tokenizer)
    os.kill(pool.pids[0], signal.SIGKILL)
    wait_until(lambda: checker.check('start: "d"', lambda: tokenizer) is None)
