"""Drafts of the host beside a program that computes several steps by itself: what they cost where they cannot pay."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from drafting import Oracle
from guessing_programs import GREEDY, N_VOCAB, Behind, Timed, add, engine, request, run
from pumice.backend.step import Batch, Pending, Step
from pumice.engine import flights
from pumice.engine.host_drafts import LEAST, LOSS, MEASURED, N_FIRST, OPENS, RENEWED, START, HostDrafts, Kind
from pumice.engine.speculation import Speculation
from pumice.proposers import Proposal

MOST = 16  # steps of a submission
TEXT = np.random.default_rng(1).integers(N_VOCAB, size=400).tolist()
N_PROMPT = 8


class Paced(Behind):
    """Writes a given text, one step a second if steps are submitted behind others.

    Attributes:
        waiting: seconds from a result to the next submission that takes effect.
        row: seconds of each row of a step behind the first.
        started: classes of numbers of rows whose kernels were started, which takes 50 seconds once.
    """

    def __init__(self, text: Sequence[int], waiting: float = 1.0, row: float = 0.1) -> None:
        super().__init__(MOST)
        self.text, self.waiting, self.row = [*text, *[0] * (4 * MOST)], waiting, row
        self.now = self.free = 0.0  # seconds: present, and end of the latest submission
        self.started: set[int] = set()

    def logits(self, batch: Batch, s: int, token: int, position: int) -> np.ndarray:
        return np.eye(N_VOCAB, dtype=np.float32)[self.text[position + 1]]

    def submit(self, step: Step) -> Pending:
        n_seqs, n_rows = len(step.batch.slots), len(step.batch.tokens)
        seconds = 1.0 + self.row * (n_rows - n_seqs) if n_rows < 64 else 10.0
        if (n_rows - 1).bit_length() not in self.started:
            self.started.add((n_rows - 1).bit_length())
            seconds += 50.0
        self.free = max(self.now + self.waiting, self.free) + seconds * (len(step.ask.numbers) if step.ask else 1)
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


def speed(
    monkeypatch: pytest.MonkeyPatch, n_seqs: int = 1, n_texts: int = 2, program: Any = Paced, **facts: Any
) -> float:
    """Return the simulated speed of writing texts with a proposer, relative to that without."""
    times = []
    name = "mtp" if "computing" in facts else "looked-up"
    for speculate in ("off", name):
        made_program = program(TEXT)
        monkeypatch.setattr(Costly, "program", made_program, raising=False)
        monkeypatch.setattr(Oracle, "texts", {tuple(TEXT[:N_PROMPT]): TEXT[N_PROMPT:]})
        for fact in ("asking", "computing"):
            monkeypatch.setattr(Costly, fact, facts.get(fact, 0.0))
        own = {fact: value for fact, value in facts.items() if fact in ("wrong", "silent")}
        now = made_program
        monkeypatch.setattr(flights, "time", SimpleNamespace(perf_counter=lambda now=now: now.now, thread_time=None))
        speculation = Speculation({name: lambda own=own: Costly(**own)}, default=speculate, runs_ahead=True)
        made = engine(made_program, 1024, n_seqs=n_seqs, lookahead=MOST, speculation=speculation)
        for _ in range(n_texts):
            generations = [add(made, request(TEXT[:N_PROMPT], GREEDY, 350)) for _ in range(n_seqs)]
            run(made)
            assert all(generation.generated == TEXT[N_PROMPT:][:350] for generation in generations)
        times.append(made_program.now - 50.0 * len(made_program.started))
    return times[0] / times[1]


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
    assert speed(monkeypatch, n_seqs, **facts) > 0.98


@pytest.mark.parametrize(
    ("facts", "least"),
    [({}, 2.5), ({"wrong": 0.1, "asking": 0.1}, 1.6), ({"computing": 0.2}, 1.6)],
)
def test_drafts_that_pay_go_on(monkeypatch: pytest.MonkeyPatch, facts: Any, least: float) -> None:
    assert speed(monkeypatch, **facts) > least


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
    assert n_free == pytest.approx(OPENS / LOSS, rel=0.01)
    host.ran(ONE, n_free - 2, n_free - 2.0)
    assert host.n_free(ONE) == 2
    host.ran(ONE, 2, 2.0)
    assert host.n_free(ONE) == 0


def test_a_trial_without_gain_takes_more_credit_the_next_time() -> None:
    """A trial may begin with a loss, such as that of a layer that hears the latest tokens."""
    host, begins = measured(), []
    for _ in range(4):
        while not (n_free := host.n_free(ONE)):
            host.drafted(ONE, 4, 1.0, 2.01)
        begins.append(round(n_free * LOSS))
        host.ran(ONE, n_free, float(n_free))
    assert begins == [1, 2, 4, 6]
    assert host.n_free(ONE) == 0
    host.drafted(ONE, 4, 3.0, 1.0)
    while not (n_free := host.n_free(ONE)):
        host.drafted(ONE, 4, 1.0, 2.01)
    assert round(n_free * LOSS) == 1


def test_a_delay_is_charged_in_part_and_slow_steps_in_full() -> None:
    lost = []
    for n_slow in (1, 2):
        host = measured()
        for _ in range(N_FIRST):  # with the start of kernels and proposers
            host.drafted(ONE, 4, 1.0, 1.0)
        for _ in range(n_slow):
            host.drafted(ONE, 4, 1.0, 501.0)
        lost.append(host.n_free(ONE) * LOSS - OPENS + START)
    assert lost == pytest.approx([16, 516], abs=0.01)


def test_kinds_of_batches_have_credits_of_their_own() -> None:
    host = measured()
    for _ in range(int(START)):
        host.drafted(ONE, 4, 1.0, 3.0)
    assert host.n_free(ONE) > 0
    assert host.n_free(OTHER) == MEASURED
