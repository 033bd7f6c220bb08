"""Steps in a row that a program takes by itself: however wrong its guesses, sequences get what they get otherwise."""

import gc
import weakref
from concurrent.futures import Future
from typing import Any

import pytest

from guessing_programs import (
    GREEDY,
    N_VOCAB,
    PROMPTS,
    RANDOM,
    Behind,
    Cells,
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
from pumice.engine import Request
from pumice.engine.cache.kv_cache import KVCache
from pumice.engine.drafts.choice import StepCosts
from pumice.engine.drafts.speculation import Speculation
from pumice.engine.loop import lookahead as lookahead_module
from pumice.engine.loop.flights import Flights
from pumice.engine.loop.policy import FairPolicy
from pumice.engine.loop.steps.flight import Flight
from pumice.engine.messages import Finished, Output
from pumice.engine.requests.generation import Running
from pumice.engine.requests.reading import LogitRows, with_future

pytestmark = pytest.mark.usefixtures("patient")


@pytest.mark.parametrize("wrong", [0, 1, 3, 7])
@pytest.mark.parametrize("sampling", [GREEDY, RANDOM], ids=["greedy", "random"])
@pytest.mark.parametrize("n_prompts", [1, 5])
@pytest.mark.parametrize("kind", [Cells, Slots])
def test_wrong_guesses_change_nothing(kind: type[Cells], sampling: dict[str, Any], wrong: int, n_prompts: int) -> None:
    lengths = [40, 13, 1, 29, 2]
    program = kind(steps=8, wrong=wrong)

    def requests() -> list[Request]:
        pairs = zip(PROMPTS[-n_prompts:], lengths, strict=False)
        return [request(prompt, sampling, n) for prompt, n in pairs]

    expected = generate(engine(Cells(steps=0), 256), requests())
    assert generate(engine(program, 256), requests()) == expected
    assert [len(tokens) for tokens, _ in expected] == lengths[:n_prompts]
    assert max(n_steps for _, n_steps in program.asked) >= {0: 8, 1: 1, 3: 2, 7: 4}[wrong]


@pytest.mark.parametrize("sampling", [GREEDY, RANDOM], ids=["greedy", "random"])
@pytest.mark.parametrize("n_ctx", [96, 256])
@pytest.mark.parametrize("kind", [Behind, SlotsBehind, Wary, WaryBehind])
def test_steps_behind_others_change_nothing(kind: type[Behind], sampling: dict[str, Any], n_ctx: int) -> None:
    """Sequences end by length and by end tokens, are cancelled, run out of blocks, and come in meanwhile."""
    lengths = [60, 33, 1, 49, 20]

    def texts(program: Cells) -> list[tuple[list[int], str | None]]:
        made = engine(program, n_ctx)
        ends = frozenset([11])
        pairs = list(zip(PROMPTS, lengths, strict=True))
        first = [add(made, request(prompt, sampling, n, end_tokens=ends)) for prompt, n in pairs[:3]]
        for _ in range(2):
            made.step()
        later = [add(made, request(prompt, sampling, n, end_tokens=ends)) for prompt, n in pairs[3:]]
        run(made)
        future: Future[list[Any]] = Future()
        reading = with_future(-1, future)
        LogitRows(reading, [1, 2], [1])
        made.read(reading)
        run(made)
        assert future.result(0)
        return [(each.generated, each.finish_reason) for each in [*first, *later]]

    program = kind(steps=8)
    assert texts(program) == texts(Cells(steps=0))
    assert any(len(asked) == 3 and asked[2] for asked in program.asked)
    assert type(program) is not Behind or n_ctx == 96 or any(program.taken)


@pytest.mark.parametrize("sampling", [GREEDY, RANDOM], ids=["greedy", "random"])
@pytest.mark.parametrize("n_batch", [16, 24])
@pytest.mark.parametrize("n_ctx", [96, 256])
@pytest.mark.parametrize("kind", [Behind, WaryBehind])
def test_steps_of_prompts_after_others_change_nothing(
    kind: type[Behind], n_ctx: int, n_batch: int, sampling: dict[str, Any]
) -> None:
    """Tokens that a step picks are tokens of the next one before they are known, beside prompts that are read."""
    prompts = [[5], [7, 8, 9], list(range(10, 30)), list(range(1, 40)), [44] * 9, list(range(3, 25))]
    lengths = [9, 33, 1, 4, 20, 2]

    def texts(program: Cells) -> list[tuple[list[int], str | None]]:
        made = engine(program, n_ctx, n_batch=n_batch)
        made.scheduler.policy = FairPolicy(max_delay=60.0)
        ends = frozenset([11])
        pairs = list(zip(prompts, lengths, strict=True))
        first = [add(made, request(prompt, sampling, n, end_tokens=ends)) for prompt, n in pairs[:4]]
        for _ in range(2):
            made.step()
        later = [add(made, request(prompt, sampling, n, end_tokens=ends)) for prompt, n in pairs[4:]]
        gone = add(made, request([9] * 50, sampling, 9))
        for _ in range(3):
            made.step()
        made.cancel(gone.id)
        run(made)
        future: Future[list[Any]] = Future()
        reading = with_future(-1, future)
        LogitRows(reading, [1, 2], [1])
        made.read(reading)
        run(made)
        assert future.result(0)
        return [(each.generated, each.finish_reason) for each in [*first, *later]]

    program = kind(steps=8)
    assert texts(program) == texts(Cells(steps=0))
    assert n_ctx == 96 or len(program.taken) >= 2
    assert n_ctx == 96 or sum(program.taken) > 2


def test_a_step_that_could_read_more_waits_for_others() -> None:
    """Requests that arrive while a step runs are in the next one."""
    made = engine(Behind(steps=8), 256, n_batch=16)
    made.scheduler.policy = FairPolicy(max_delay=60.0)

    def reads_behind() -> bool:
        """Run, and return True if a step of a prompt was submitted behind another."""
        found = False
        while made.busy:
            made.step()
            flights = [flight for flight in made.flights.on_way if flight.behind]
            found = found or any(len(flight.batch.tokens) > len(flight.members) for flight in flights)
        return found

    add(made, request(list(range(10)), GREEDY, 9))
    made.step()
    add(made, request(list(range(28)), GREEDY, 9))
    assert not reads_behind()
    add(made, request(list(range(48)), GREEDY, 9))
    assert reads_behind()


@pytest.mark.parametrize("steps", [8, 0], ids=["picks", "samples"])
def test_events_are_passed_on_while_a_device_computes(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With programs that compute in this thread, tokens are not kept for a step."""
    program, order = Cells(steps=steps), []
    made = engine(program, 256)
    begin = Flights.begin
    monkeypatch.setattr(Flights, "begin", lambda *args: order.append("begin") or begin(*args))
    made.tell = lambda: order.extend(["tell"] * any(isinstance(event, Output) for event in made.drain()))
    for prompt in PROMPTS[:3]:
        add(made, request(prompt, GREEDY, 9))
    for _ in range(6):
        made.step()
        if not made.tells_later:
            made.tell()
    assert order[:3] == (["begin", "begin", "tell"] if steps else ["begin", "tell", "begin"])


def test_an_ended_sequence_is_told_while_the_prompt_of_another_is_read() -> None:
    made, told = engine(Cells(steps=8), 256, n_batch=16), []
    made.tell = lambda: told.extend(made.drain())
    first = add(made, request([5], GREEDY, 3))
    made.step()
    other = add(made, request([7] * 150, GREEDY, 3))
    while not first.finish_reason:
        made.step()
    for _ in range(2):
        made.step()
    assert not other.generated
    assert any(isinstance(event, Finished) for event in told)


@pytest.mark.parametrize("kind", [Behind, SlotsBehind])
def test_guesses_begin_with_all_steps(kind: type[Behind]) -> None:
    """No flight follows guesses, so they need not begin with a few."""
    program = kind(steps=8)
    generate(engine(program, 256), [request([5], {"temperature": 0, "repeat_penalty": 1.1}, 40)])
    assert next(n_steps for _, n_steps, *_ in program.asked if n_steps > 1) == 8


def test_an_ended_sequence_is_not_kept() -> None:
    made = engine(Behind(steps=8), 256, speculation=Speculation({}))
    kept = weakref.ref(add(made, request([5], GREEDY, 20)))
    run(made)
    made.drain()
    gc.collect()
    assert kept() is None


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


def test_a_cancelled_sequence_is_out_of_steps_on_their_way() -> None:
    program = Behind(steps=4)
    made = engine(program, 256)
    expected = generate(engine(Cells(0), 256), [request([7], GREEDY, 40)])[0]
    gone, other = (add(made, request(prompt, GREEDY, 40)) for prompt in ([5], [7]))
    for _ in range(6):
        made.step()
    made.cancel(gone.id)
    run(made)
    assert gone.finish_reason == "cancelled"
    assert (other.generated, other.finish_reason) == expected


def test_steps_are_saved() -> None:
    program = Cells(steps=8)
    generate(engine(program), [request([5, 6], GREEDY, 1 + 3 * 8 + 4 + 1)])
    assert program.asked == [(1, 0), (1, 8), (1, 8), (1, 8), (1, 4), (1, 1)]


def test_the_policy_gets_the_seconds_of_a_single_step(monkeypatch: pytest.MonkeyPatch) -> None:
    land, seconds = Flights.land, []

    def simulated(flights: Flights, flight: Flight, goes_on: bool = True) -> float:
        land(flights, flight, goes_on)
        return 2.0 * flight.n_steps

    monkeypatch.setattr(Flights, "land", simulated)
    program = Cells(steps=8)
    made = engine(program, 256)
    monkeypatch.setattr(made.scheduler.policy, "took", lambda _, took: seconds.append(took))
    generate(made, [request(PROMPTS[-1], GREEDY, 40)])
    assert max(n_steps for _, n_steps in program.asked) == 8
    assert set(seconds) == {2.0}


def test_a_first_token_is_not_kept_waiting() -> None:
    program = Cells(steps=8)
    made = engine(program)
    generate(made, [request([5], GREEDY, 40)])
    generate(made, [request([6], GREEDY, 9)])
    assert program.asked[-2:] == [(1, 1), (1, 8)]


def test_an_end_token_in_the_middle_ends_one_of_several() -> None:
    whole, other = generate(engine(Cells(0)), [request([5], GREEDY, 40), request([7], GREEDY, 40)])
    stopper = whole[0][20]
    expected = whole[0][: whole[0].index(stopper)]
    program = Cells(steps=8)
    requests = [request([5], GREEDY, 40, end_tokens=frozenset([stopper])), request([7], GREEDY, 40)]
    assert generate(engine(program), requests) == [(expected, "stop"), other]
    assert {n_seqs for n_seqs, _ in program.asked} == {1, 2}


def test_tokens_of_one_step_are_one_event() -> None:
    made = engine(Cells(steps=8))
    add(made, request([5], GREEDY, 1 + 8))
    run(made)
    assert [len(event.tokens) for event in made.drain() if isinstance(event, Output)] == [1, 8]


@pytest.mark.parametrize("kind", [Cells, Slots])
@pytest.mark.parametrize("steps", [0, 8])
def test_the_context_ends_or_shifts(kind: type[Cells], steps: int) -> None:
    (ended,) = generate(engine(kind(steps), 64), [request([5], RANDOM, 1000)])
    assert (len(ended[0]), ended[1]) == (64, "context_full")
    (shifted,) = generate(engine(kind(steps), 64), [request([5], RANDOM, 100, context_shift=True)])
    assert shifted == generate(engine(Cells(0), 64), [request([5], RANDOM, 100, context_shift=True)])[0]


@pytest.mark.parametrize("kind", [Cells, Slots])
@pytest.mark.parametrize("sampling", [GREEDY, RANDOM], ids=["greedy", "random"])
def test_running_out_of_blocks_delays_but_changes_nothing(kind: type[Cells], sampling: dict[str, Any]) -> None:
    requests = [request(prompt, sampling, 45) for prompt in PROMPTS]
    alone = [generate(engine(Cells(0)), [each])[0] for each in requests]
    program = kind(steps=16)
    again = [request(prompt, sampling, 45) for prompt in PROMPTS]
    assert generate(engine(program, n_ctx=96), again) == alone
    assert max(n_steps for _, n_steps in program.asked) > 1


@pytest.mark.parametrize("n_checkpoints", [0, 1, 2, 6])
def test_few_slots_for_copies_change_nothing(n_checkpoints: int) -> None:
    requests = [request(prompt, RANDOM, 30) for prompt in PROMPTS]
    alone = [generate(engine(Cells(0)), [each])[0] for each in requests]
    program = Slots(steps=8, wrong=5)
    again = [request(prompt, RANDOM, 30) for prompt in PROMPTS]
    assert generate(engine(program, 256, n_checkpoints=n_checkpoints), again) == alone
    assert (max(n_steps for _, n_steps in program.asked) > 0) == (n_checkpoints > 0)


def test_an_equal_prefix_is_shared_after_wrong_guesses() -> None:
    made = engine(Cells(steps=8, wrong=3), 256)
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


def test_rare_right_guesses_make_runs_short() -> None:
    program = Cells(steps=16, wrong=2)
    generate(engine(program), [request([5], GREEDY, 60)])
    assert sum(n_steps for _, n_steps in program.asked) < 16 + 60 * 2.5


def test_one_such_sequence_is_enough() -> None:
    program = Cells(steps=8)
    requests = [request([5], GREEDY, 40), request([7], {"top_k": 0}, 9)]
    expected = [generate(engine(Cells(0)), [each])[0] for each in requests]
    assert generate(engine(program), [request([5], GREEDY, 40), request([7], {"top_k": 0}, 9)]) == expected
    assert program.asked[:9] == [(2, 0)] * 9
    assert program.asked[-1][1] > 0


def test_prompts_come_first() -> None:
    """Until all members of a batch generate it is computed a step at a time."""
    program = Cells(steps=8)
    generate(engine(program, n_batch=8), [request([5], GREEDY, 20), request(PROMPTS[2], GREEDY, 20)])
    n_alone = next(i for i, (_, n_steps) in enumerate(program.asked) if n_steps)
    assert [n_steps for _, n_steps in program.asked[:n_alone]] == [0] * n_alone
    assert n_alone == 3


@pytest.mark.parametrize(("seconds", "steps"), [(0.001, 16), (0.002, 8), (0.009, 2), (0.011, 1), (1.0, 1)])
def test_steps_per_submit_follow_their_measured_duration(
    monkeypatch: pytest.MonkeyPatch, seconds: float, steps: int
) -> None:
    monkeypatch.setattr(lookahead_module, "SECONDS", 0.02)
    made = engine(Cells(steps=16))
    lookahead = made.flights.lookahead
    generation = add(made, request([5], GREEDY, 1000))
    generation.accept(6)
    tables, _ = KVCache(made.limits).begin([])
    running = Running(0, tables, generation=generation, n_past=1)
    assert lookahead.steps([(running, 1)]) == 16
    made.speculation.choice.costs = StepCosts({1: 1.0, 2: 1.0, 4: 3.0}, seconds=seconds)
    assert lookahead.steps([(running, 1)]) == steps


@pytest.mark.parametrize(("most", "steps"), [(0, 0), (1, 1), (3, 2), (8, 8), (99, 16)])
def test_a_setting_takes_the_place_of_the_clock(monkeypatch: pytest.MonkeyPatch, most: int, steps: int) -> None:
    """Tokens stay the same in runs of the configured number of steps, however long these take."""
    monkeypatch.setattr(lookahead_module, "SECONDS", 0.0)
    program, asked = Cells(steps=16), [request([5], GREEDY, 60)]
    assert generate(engine(program, lookahead=most), asked) == generate(engine(Cells(0)), asked)
    assert max(n_steps for _, n_steps in program.asked) == steps
