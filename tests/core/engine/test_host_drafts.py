"""Drafts of the host beside a program that computes several steps by itself: what they cost where they cannot pay."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from drafting import Oracle
from guessing_programs import GREEDY, N_VOCAB, Behind, Timed, add, engine, request, run
from pumice.backend.step import Batch, Pending, Step
from pumice.engine.draft_length import DraftLength
from pumice.engine.host_drafts import (
    LEAST,
    LOSS,
    LOST_BEFORE,
    MEASURED,
    N_FIRST,
    OPENS,
    RENEWED,
    START,
    HostDrafts,
    Kind,
)
from pumice.engine.speculation import Speculation
from pumice.engine.steps import context
from pumice.proposers import Proposal

MOST = 16  # steps of a submission
TEXT = np.random.default_rng(1).integers(N_VOCAB, size=400).tolist()
N_PROMPT = 8
STARTING = 50.0  # seconds, which are no part of the measured times


class Paced(Behind):
    """Writes a given text, one step a second if steps are submitted behind others.

    Attributes:
        waiting: seconds from a result to the next submission that takes effect.
        row: seconds of each row of a step behind the first.
        started: classes of numbers of rows whose kernels were started, which takes ``STARTING`` seconds once.
    """

    def __init__(self, text: Sequence[int], waiting: float = 1.0, row: float = 0.1) -> None:
        super().__init__(MOST)
        self.text, self.waiting, self.row = [*text, *[0] * (4 * MOST)], waiting, row
        self.now = self.free = 0.0  # seconds: present, and end of the latest submission
        self.started: set[int] = set()

    def logits(self, batch: Batch, s: int, token: int, position: int) -> np.ndarray:
        return np.eye(N_VOCAB, dtype=np.float32)[self.text[position + 1]]

    @property
    def n_started(self) -> int:
        """Return the number of classes that were started, like a runner."""
        return len(self.started)

    def submit(self, step: Step) -> Pending:
        n_seqs, n_rows = len(step.batch.slots), len(step.batch.tokens)
        seconds = 1.0 + self.row * (n_rows - n_seqs) if n_rows < 64 else 10.0
        seconds *= len(step.ask.numbers) if step.ask else 1
        if (n_rows - 1).bit_length() not in self.started:
            self.started.add((n_rows - 1).bit_length())
            seconds += STARTING
        self.free = max(self.now + self.waiting, self.free) + seconds
        return Timed(super().submit(step), self, self.free)


class Costly(Oracle):
    """Takes a simulated time for each time that it is asked, and for each token that it proposes for all sequences."""

    program: Paced
    asking = computing = 0.0

    @classmethod
    def propose_all(cls, proposers: Sequence[Any], n: Sequence[int]) -> list[Proposal]:
        proposals = [proposer.propose(most) for proposer, most in zip(proposers, n, strict=True)]
        cls.program.now += cls.asking + cls.computing * max(len(proposal.tokens) for proposal in proposals)
        return proposals


def times(
    monkeypatch: pytest.MonkeyPatch, drafts: bool, n_seqs: int = 1, n_rounds: int = 2, **facts: Any
) -> list[float]:
    """Return the simulated seconds of each of ``n_rounds``, in which ``n_seqs`` texts are written at once.

    The cache holds all of them, and the start of kernels is not counted.
    """
    made_program, seconds = Paced(TEXT), []
    monkeypatch.setattr(Costly, "program", made_program, raising=False)
    monkeypatch.setattr(Oracle, "texts", {tuple(TEXT[:N_PROMPT]): TEXT[N_PROMPT:]})
    for fact in ("asking", "computing"):
        monkeypatch.setattr(Costly, fact, facts.get(fact, 0.0))
    own = {fact: value for fact, value in facts.items() if fact in ("wrong", "silent")}
    clock = SimpleNamespace(perf_counter=lambda: made_program.now, thread_time=None)
    monkeypatch.setattr(context, "time", clock)
    name = "mtp" if "computing" in facts else "looked-up"
    default = name if drafts else "off"
    speculation = Speculation({name: lambda: Costly(**own)}, default=default, runs_ahead=True)
    speculation.runners = [made_program]  # type: ignore[list-item]
    made = engine(made_program, 512 * n_seqs, n_seqs=n_seqs, lookahead=MOST, speculation=speculation)
    for _ in range(n_rounds):
        began = made_program.now - STARTING * made_program.n_started
        generations = [add(made, request(TEXT[:N_PROMPT], GREEDY, 350)) for _ in range(n_seqs)]
        run(made)
        assert all(generation.generated == TEXT[N_PROMPT:][:350] for generation in generations)
        seconds.append(made_program.now - STARTING * made_program.n_started - began)
    return seconds


@pytest.mark.parametrize("n_seqs", [1, 9])
@pytest.mark.parametrize(
    "facts",
    [
        {"wrong": 1.0},
        {"wrong": 0.7, "asking": 0.1},
        {"silent": 1.0, "asking": 0.02},
        {"wrong": 0.1, "asking": 1.0, "computing": 1.5},  # each token of a layer that drafts is a step of its own
        {"wrong": 0.6, "asking": 1.0, "computing": 1.0},
    ],
    ids=["wrong", "often wrong", "silent", "slow", "slow and wrong"],
)
def test_drafts_that_cannot_pay_take_little(monkeypatch: pytest.MonkeyPatch, facts: Any, n_seqs: int) -> None:
    """This holds for first texts, too: the first trial takes a few steps, later ones a small share of the time."""
    plain = times(monkeypatch, False, n_seqs, 5)
    drafted = times(monkeypatch, True, n_seqs, 5, **facts)
    assert drafted[0] - plain[0] < 13
    assert sum(plain[:2]) / sum(drafted[:2]) > 0.98
    assert sum(plain) / sum(drafted) > 0.985
    assert sum(plain[1:]) / sum(drafted[1:]) > 0.985


@pytest.mark.parametrize(
    ("facts", "least"),
    [({}, 2.5), ({"wrong": 0.1, "asking": 0.1}, 1.6), ({"computing": 0.2}, 1.6)],
)
def test_drafts_that_pay_go_on(monkeypatch: pytest.MonkeyPatch, facts: Any, least: float) -> None:
    assert sum(times(monkeypatch, False)) / sum(times(monkeypatch, True, **facts)) > least


class Device(Paced):
    """A GPU in milliseconds: ``pace`` for a step behind others, 1.2 for one of up to 8 rows that the host waits for.

    Attributes:
        first: time that the first step of each size takes longer.
        n_started: sizes of steps so far, with those of proposers.
    """

    pace = 0.85
    first = 0.0
    n_started = 0

    def submit(self, step: Step) -> Pending:
        n_rows, n_steps = len(step.batch.tokens), len(step.ask.numbers) if step.ask else 1
        seconds = self.pace * n_steps if n_rows == 1 else 1.2 if n_rows <= 8 else 1.7 if n_rows <= 16 else 10.0
        self.free = max(self.now + 0.2, self.free) + seconds + self.starts((n_rows - 1).bit_length())
        return Timed(Behind.submit(self, step), self, self.free)

    def starts(self, size: int) -> float:
        """Return the further time of a step of a size."""
        is_first = size not in self.started
        self.started.add(size)
        self.n_started += is_first
        return self.first * is_first


class Head(Costly):
    """Takes 0.3 ms, and 0.3 ms for each token; its steps have sizes by the tokens that they read and draft."""

    program: Device
    estimate = 0.5
    n_known = -30  # tokens of the text that it has read; at first it reads the prompt, too

    @classmethod
    def propose_all(cls, proposers: Sequence[Any], n: Sequence[int]) -> list[Proposal]:
        proposals = [proposer.propose(most) for proposer, most in zip(proposers, n, strict=True)]
        n_new = max(proposer._n - proposer.n_known for proposer in proposers)
        for proposer in proposers:
            proposer.n_known = proposer._n
        seconds = 0.3 + 0.3 * max(n)
        cls.program.now += seconds + cls.program.starts(100 + max(n)) + cls.program.starts(200 + n_new.bit_length())
        return [Proposal(proposal.tokens, 0, [cls.estimate] * len(proposal.tokens)) for proposal in proposals]


def times_of_texts(
    monkeypatch: pytest.MonkeyPatch, drafts: bool, pace: float, wrong: float, estimate: float, first: float, n: int
) -> list[float]:
    """Return the simulated milliseconds of each of ``n`` texts of 256 tokens."""
    program = Device(TEXT)
    program.pace, program.first = pace, first
    monkeypatch.setattr(Costly, "program", program, raising=False)
    monkeypatch.setattr(Head, "estimate", estimate)
    monkeypatch.setattr(Oracle, "texts", {tuple(TEXT[:N_PROMPT]): TEXT[N_PROMPT:]})
    clock = SimpleNamespace(perf_counter=lambda: program.now, thread_time=None)
    monkeypatch.setattr(context, "time", clock)
    speculation = Speculation({"mtp": lambda: Head(wrong=wrong)}, default="mtp" if drafts else "off", runs_ahead=True)
    speculation.runners = [program]  # type: ignore[list-item]
    made, times = engine(program, 1024, n_seqs=1, lookahead=MOST, speculation=speculation), []
    for _ in range(n):
        began = program.now
        generation = add(made, request(TEXT[:N_PROMPT], GREEDY, 256))
        run(made)
        assert generation.generated == TEXT[N_PROMPT:][:256]
        times.append(program.now - began)
    return times


@pytest.mark.parametrize("estimate", [0.96, 0.8])
def test_a_good_head_pays_after_a_text(monkeypatch: pytest.MonkeyPatch, estimate: float) -> None:
    """A draft of 3 tokens saves little, one of 7 much."""
    plain, drafted = (times_of_texts(monkeypatch, drafts, 0.85, 0.04, estimate, 0.0, 4) for drafts in (False, True))
    assert min(a / b for a, b in zip(plain[1:], drafted[1:], strict=True)) > 1.4
    assert plain[0] / drafted[0] > 1.2


def test_the_first_steps_of_a_size_do_not_end_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, drafted = (times_of_texts(monkeypatch, drafts, 0.85, 0.04, 0.96, 90.0, 5) for drafts in (False, True))
    assert min(a / b for a, b in zip(plain[3:], drafted[3:], strict=True)) > 1.4


@pytest.mark.parametrize("estimate", [0.9, 0.33])
def test_a_bad_draft_model_takes_little(monkeypatch: pytest.MonkeyPatch, estimate: float) -> None:
    """No length would pay, even if all its tokens were right: few trials tell."""
    plain, drafted = (times_of_texts(monkeypatch, drafts, 0.41, 0.67, estimate, 0.0, 4) for drafts in (False, True))
    assert sum(plain) / sum(drafted) > 0.98
    assert sum(plain[1:]) / sum(drafted[1:]) > 0.98


ONE: Kind = (1, frozenset(["mtp"]), False)
OTHER: Kind = (2, frozenset(["mtp"]), False)


def measured() -> HostDrafts:
    """Return decisions about a kind of batch whose steps take a second."""
    host = HostDrafts()
    for _ in range(LEAST):
        assert host.n_free(ONE) == MEASURED
        host.ran(ONE, 8, 8.0)
    return host


def test_the_pace_is_measured_first_and_again_later() -> None:
    host = measured()
    for _ in range(RENEWED):
        assert host.n_free(ONE) == 0
        host.drafted(ONE, 4, 3.0, 2.0)
    assert host.n_free(ONE) == MEASURED


def test_lost_steps_end_drafts_until_there_is_credit_again() -> None:
    host = measured()
    while not (n_free := host.n_free(ONE)):
        host.drafted(ONE, 4, 1.0, 2.0)
    n_before = LEAST * MEASURED + START  # steps that the trial is weighed against, too
    assert n_free == pytest.approx(START / LOST_BEFORE - n_before, abs=1)
    host.ran(ONE, n_free - 2, n_free - 2.0)
    assert host.n_free(ONE) == 2
    host.ran(ONE, 2, 2.0)
    assert host.n_free(ONE) == 0


def test_other_kinds_of_batches_wait_for_what_one_lost() -> None:
    host = measured()
    for _ in range(int(START) + 1):
        host.drafted(ONE, 4, 1.0, 2.0)
    n_free = host.n_free(ONE)
    assert n_free > 300
    for _ in range(LEAST):
        host.ran(OTHER, 8, 8.0)
    assert host.n_free(OTHER) == pytest.approx(n_free - 8 * LEAST, abs=1)
    host.ran(ONE, n_free, float(n_free))
    assert host.n_free(OTHER) == 0


def test_a_first_trial_ends_where_more_was_lost_than_charged() -> None:
    host = measured()
    host.drafted(ONE, 4, 1.0, 9.0)
    assert host.n_free(ONE) == 0
    host.drafted(ONE, 4, 1.0, 3.0)
    assert host.n_free(ONE) > 0


def test_a_trial_without_gain_takes_more_credit_the_next_time() -> None:
    """A trial may begin with a loss, such as that of a layer that hears the latest tokens."""
    host, begins = measured(), []
    for _ in range(4):
        while not (n_free := host.n_free(ONE)):
            host.drafted(ONE, 4, 1.0, 2.01)
        begins.append(round(n_free * LOSS))
        host.ran(ONE, n_free, float(n_free))
    assert begins == [3, 3, 4, 6]  # before the first two what was lost becomes a small share of all time
    assert host.n_free(ONE) == 0
    host.drafted(ONE, 4, 3.0, 1.0)
    while not (n_free := host.n_free(ONE)):
        host.drafted(ONE, 4, 1.0, 2.01)
    assert round(n_free * LOSS) == 1


def test_a_delay_is_charged_in_part_and_slow_steps_in_full() -> None:
    lost = []
    for n_slow, usual in ((1, None), (2, None), (2, 2.0)):
        host = measured()
        for _ in range(N_FIRST):  # with the start of kernels and proposers
            host.drafted(ONE, 4, 1.0, 1.0)
        for _ in range(n_slow):
            host.drafted(ONE, 4, 1.0, 501.0, usual=usual)
        lost.append(host.n_free(ONE) * LOSS - OPENS + START)
    assert lost == pytest.approx([16, 516, 503], abs=0.01)


def test_a_delay_of_a_step_whose_time_is_known_ends_no_drafts() -> None:
    host = measured()
    for seconds in [1.0] * N_FIRST + [501.0, 2.0, 501.0]:  # of which 3 and 1 and 3 steps are charged at most
        assert host.n_free(ONE) == 0
        host.drafted(ONE, 4, 1.0, seconds, usual=2.0)
    assert host.n_free(ONE) > 0


def test_credit_is_lent_once() -> None:
    host, n_drafted = measured(), 0
    while not host.n_free(ONE):
        host.drafted(ONE, 4, 1.0, 2.0)
        host.lend(ONE)
        n_drafted += 1
    assert n_drafted == 2 * START
    host.lend(ONE)
    assert host.n_free(ONE) > 0


def test_kinds_of_batches_have_credits_of_their_own() -> None:
    host = measured()
    for _ in range(int(START)):
        host.drafted(ONE, 4, 1.0, 3.0)
    assert host.n_free(ONE) > 0
    assert host.n_free(OTHER) == MEASURED


def test_the_preparation_of_a_new_size_is_no_loss() -> None:
    host = measured()
    for _ in range(100):
        host.drafted(ONE, 4, 1.0, 500.0, is_new=True)
    assert host.n_free(ONE) == 0
    host.give_up(ONE)
    assert host.n_free(ONE) > 0


def paced(rows: dict[int, float], computing: float) -> DraftLength:
    """Return lengths beside steps of a second, with the times of steps with more rows, and of a computed token."""
    length = DraftLength()
    length.keep_pace(1, 1.0)
    for n_rows, seconds in rows.items():
        for _ in range(2):  # the first is not recorded
            length.took(1, 1, n_rows - 1, 0, seconds)
    for _ in range(2):
        length.asked("draft", 5 * computing, 3)
    return length


@pytest.mark.parametrize(
    ("rows", "computing", "best"),
    [
        ({4: 1.72}, 0.2, 7),
        ({4: 1.72}, 0.01, 15),
        ({4: 1.1, 8: 2.5}, 0.1, 3),
        ({4: 3.0, 8: 7.0, 16: 15.0}, 0.5, 0),
    ],
    ids=["verifying is long", "computing takes nothing", "few rows", "never"],
)
def test_a_trial_has_the_length_that_could_pay_most(rows: dict[int, float], computing: float, best: int) -> None:
    length = paced(rows, computing)
    assert length.most_computed("draft") == best
    if not best:
        assert length.most_computed("draft") > 0  # the next time, since times and texts change
        assert length.most_computed("draft") == 0


def test_lengths_follow_the_tokens_that_are_right() -> None:
    length = paced({4: 1.72}, 0.1)
    for _ in range(20):
        length.computed("draft", 1, has_ended=True)
    assert length.most_computed("draft") == 3
    for _ in range(20):
        length.computed("draft", 7, has_ended=False)
    assert length.most_computed("draft") == 15
    length.longest = 8
    assert length.most_computed("draft") == 7
