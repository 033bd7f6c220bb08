"""A failure belongs to one sequence: the others of its step go on."""

from __future__ import annotations

from typing import Any

import pytest

from guessing_programs import GREEDY, N_VOCAB, PROPOSERS, SAMPLERS, Cells, engine, request, run
from pumice.engine import Generation, Preparer
from pumice.engine.messages import Failed
from pumice.sampler import Candidates, Sampler


class Fails(Sampler):
    """Fails at the third token."""

    n = 0

    def accept(self, token: int) -> None:
        self.n += 1

    def apply(self, candidates: Candidates) -> None:
        if self.n == 5:
            raise ValueError("no such candidate")


class FailsToAccept(Fails):
    """Fails when it hears of the third token."""

    def accept(self, token: int) -> None:
        super().accept(token)
        if self.n == 5:
            raise ValueError("no such token")

    def apply(self, candidates: Candidates) -> None: ...


def texts(names: list[str | None], steps: int) -> tuple[list[Generation], list[Any]]:
    """The generations, one for each name of a further sampler, computed together."""
    made = engine(Cells(steps))
    samplers = {**SAMPLERS, "fails": Fails, "fails_to_accept": FailsToAccept}
    prepare = Preparer(made.limits.n_ctx, N_VOCAB, lambda: None, samplers, list(SAMPLERS), proposers=PROPOSERS)
    generations = []
    for id, name in enumerate(names):
        order = [name, *SAMPLERS] if name else list(SAMPLERS)
        generations += prepare.generations([id], request([5 + id, 6, 7], GREEDY, 12, samplers=order))
        made.add(generations[-1])
    run(made)
    events = made.drain()
    assert made.snapshot().n_slots_free == made.limits.n_seqs
    assert made.n_requests == 0
    return generations, events


@pytest.mark.parametrize("steps", [0, 8])
@pytest.mark.parametrize("name", ["fails", "fails_to_accept"])
def test_others_of_the_step_go_on(name: str, steps: int) -> None:
    expected, _ = texts([None, None, None], steps)
    found, events = texts([None, name, None], steps)
    failed = [event for event in events if isinstance(event, Failed)]
    assert [event.id for event in failed] == [1]
    assert "no such" in str(failed[0].error)
    assert [found[i].generated for i in (0, 2)] == [expected[i].generated for i in (0, 2)]
    assert not [event for event in events[events.index(failed[0]) + 1 :] if event.id == 1]
