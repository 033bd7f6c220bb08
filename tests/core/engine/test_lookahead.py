"""Steps in a row that a program takes by itself: sequences get what they get otherwise."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from itertools import product
from typing import Any

import pytest

from guessing_programs import (
    GREEDY,
    N_VOCAB,
    PROMPTS,
    RANDOM,
    Behind,
    Cells,
    Picked,
    Slots,
    SlotsBehind,
    Wary,
    WaryBehind,
    add,
    engine,
    generate,
    request,
    run,
)
from nightly import crossed, variants
from pumice.backend.pick import Ahead
from pumice.backend.step import Pending, Step
from pumice.engine import Engine, Request
from pumice.engine.loop.policy import FairPolicy
from pumice.engine.requests.reading import LogitRows, with_future

pytestmark = pytest.mark.usefixtures("patient")


@pytest.mark.parametrize(("kind", "sampling", "n_prompts"), crossed([Cells, Slots], [GREEDY, RANDOM], [1, 5]))
def test_steps_in_a_row_change_nothing(kind: type[Cells], sampling: dict[str, Any], n_prompts: int) -> None:
    lengths = [40, 13, 1, 29, 2]
    program = kind(steps=8)

    def requests() -> list[Request]:
        pairs = zip(PROMPTS[-n_prompts:], lengths, strict=False)
        return [request(prompt, sampling, n) for prompt, n in pairs]

    expected = generate(engine(Cells(steps=0), 256), requests())
    assert generate(engine(program, 256), requests()) == expected
    assert [len(tokens) for tokens, _ in expected] == lengths[:n_prompts]
    assert max(n_steps for _, n_steps in program.asked) == 8


Texts = list[tuple[list[int], str | None]]


def texts_of_two_groups(made: Engine, requests: Sequence[Request], n_first: int, gone: Request | None = None) -> Texts:
    """Texts of requests, of which the first come two steps before the others, and logits are read in the end.

    ``gone`` comes last, and is cancelled three steps later.
    """
    first = [add(made, each) for each in requests[:n_first]]
    for _ in range(2):
        made.step()
    later = [add(made, each) for each in requests[n_first:]]
    if gone:
        added = add(made, gone)
        for _ in range(3):
            made.step()
        made.cancel(added.id)
    run(made)
    future: Future[list[Any]] = Future()
    reading = with_future(-1, future)
    LogitRows(reading, [1], tokens=[1, 2])
    made.read(reading)
    run(made)
    assert future.result(0)
    return [(each.generated, each.finish_reason) for each in [*first, *later]]


@pytest.mark.parametrize(
    ("kind", "sampling", "n_ctx"), crossed([Behind, SlotsBehind, Wary, WaryBehind], [GREEDY, RANDOM], [256, 96])
)
def test_steps_behind_others_change_nothing(kind: type[Behind], sampling: dict[str, Any], n_ctx: int) -> None:
    """Sequences end by length and by end tokens, run out of blocks, and come in meanwhile."""
    pairs = list(zip(PROMPTS, [60, 33, 1, 49, 20], strict=True))

    def texts(program: Cells) -> Texts:
        requests = [request(prompt, sampling, n, end_tokens=frozenset([11])) for prompt, n in pairs]
        return texts_of_two_groups(engine(program, n_ctx), requests, 3)

    program = kind(steps=8)
    assert texts(program) == texts(Cells(steps=0))
    assert any(len(asked) == 3 and asked[2] for asked in program.asked)
    assert type(program) is not Behind or n_ctx == 96 or any(program.taken)


@pytest.mark.parametrize(
    ("kind", "n_ctx", "n_batch", "sampling"),
    variants(
        product([Behind, WaryBehind], [96, 256], [16, 24], [GREEDY, RANDOM]),
        [(Behind, 256, 16, RANDOM), (Behind, 96, 24, GREEDY), (WaryBehind, 256, 24, GREEDY)],
    ),
)
def test_steps_of_prompts_after_others_change_nothing(
    kind: type[Behind], n_ctx: int, n_batch: int, sampling: dict[str, Any]
) -> None:
    """Tokens that a step picks are tokens of the next one before they are known, beside prompts that are read."""
    prompts = [[5], [7, 8, 9], list(range(10, 30)), list(range(1, 40)), [44] * 9, list(range(3, 25))]
    pairs = list(zip(prompts, [9, 33, 1, 4, 20, 2], strict=True))

    def texts(program: Cells) -> Texts:
        made = engine(program, n_ctx, n_batch=n_batch)
        made.scheduler.policy = FairPolicy(n_beside=n_batch)
        requests = [request(prompt, sampling, n, end_tokens=frozenset([11])) for prompt, n in pairs]
        return texts_of_two_groups(made, requests, 4, request([9] * 50, sampling, 9))

    program = kind(steps=8)
    assert texts(program) == texts(Cells(steps=0))
    assert n_ctx == 96 or len(program.taken) >= 2
    assert n_ctx == 96 or sum(program.taken) > 2


def test_states_that_have_seen_more_are_no_prefix() -> None:
    """Useful blocks of an ended sequence are found; the state beyond its end is not."""
    program, ends = SlotsBehind(steps=8), frozenset([11])
    made = engine(program, 256)
    first = add(made, request(PROMPTS[2], RANDOM, 60, end_tokens=ends))
    run(made)
    assert program.copied <= 1, "nothing is copied to be taken back"
    prompt = [*PROMPTS[2], *first.generated, 3]
    expected = generate(engine(Cells(0), 256), [request(prompt, RANDOM, 20)])
    assert generate(made, [request(prompt, RANDOM, 20)]) == expected


def test_a_first_token_is_not_kept_waiting() -> None:
    program = Cells(steps=8)
    made = engine(program)
    generate(made, [request([5], GREEDY, 40)])
    generate(made, [request([6], GREEDY, 9)])
    assert program.asked[-2:] == [(1, 1), (1, 8)]


def test_an_equal_prefix_is_shared_after_steps_in_a_row() -> None:
    made = engine(Cells(steps=8), 256)
    ((first, _),) = generate(made, [request([5], GREEDY, 70)])
    again = add(made, request([5, *first[:69]], GREEDY, 1))
    run(made)
    assert again.timings.prompt_cached == 69
    assert again.generated == first[69:]


def test_chains_beyond_the_programs_candidates_run_one_step_at_a_time() -> None:
    refused = [{"top_k": 17}, {"top_k": 0}, {"top_k": 50}, {"top_k": 9, "repeat_penalty": 0.8}, {"typical_p": 0.5}]
    for sampling in refused:
        program = Cells(steps=8)
        generate(engine(program), [request([5], sampling, 9)])
        assert {n_steps for _, n_steps in program.asked} == {0}, sampling


@pytest.mark.parametrize(
    "sampling",
    [
        {"temperature": 0.0, "logit_bias": {token: -float("inf") for token in range(0, N_VOCAB, 2)}},
        {"temperature": 0.9, "top_k": 9, "repeat_penalty": 1.5, "repeat_last_n": 20},
        {"temperature": 0.9, "top_k": 16, "frequency_penalty": 1.0, "dry_multiplier": 1.0},
    ],
)
@pytest.mark.parametrize("kind", [Cells, Slots])
def test_lowered_logits_keep_the_program_going(kind: type[Cells], sampling: dict[str, Any]) -> None:
    """A step returns all logits if the highest ones do not suffice."""
    program = kind(steps=8)
    requests = [request(prompt, sampling, 40) for prompt in PROMPTS]
    assert generate(engine(program, 512), requests) == generate(engine(Cells(0), 512), requests)
    ahead = sum(n_seqs * n_steps for n_seqs, n_steps in program.asked)
    assert ahead > 100
    assert len(program.asked) < 200


class Awaited(Picked):
    """Tokens that note whether another step was submitted before they were asked for."""

    def __init__(self, program: "Watched", ahead: Ahead) -> None:
        super().__init__(ahead)
        self._program, self._number = program, len(program.asked)

    def tokens(self) -> Iterator[Ahead]:
        self._program.followed.append(len(self._program.asked) > self._number)
        yield from super().tokens()


class Watched(Behind):
    followed: list[bool]

    def submit(self, step: Step) -> Pending:
        assert step.ask
        return Awaited(self, self.go_on(step, step.ask))


def test_prompts_that_end_with_their_first_token_leave_no_gap() -> None:
    """The next step is submitted before a step ends, also behind one after which other sequences ended."""
    program = Watched(steps=8)
    program.followed = []
    made = engine(program, 256, n_batch=16)
    generate(made, [request([i] * 8, GREEDY, 1) for i in range(8)])
    assert program.followed == [True, True, True, False]
