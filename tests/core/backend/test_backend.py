"""The contract of a plain program: it has ``run``, and the engine's other ways to ask for a step end there."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from graphs import batch
from pumice.backend import Program
from pumice.backend.pick import Ask, Pick
from pumice.backend.step import Step


class Doubling(Program):
    """Gives twice its tokens, and those of the batch."""

    def __init__(self) -> None:
        self.n_runs = 0

    def run(self, step: Step) -> Mapping[str, Any]:
        self.n_runs += 1
        return {"y": 2 * step.inputs["tokens"], "tokens": step.batch.tokens}

    @property
    def memory(self) -> dict[str, int]:
        return {}


def test_a_step_is_computed_when_it_is_submitted() -> None:
    program = Doubling()
    pending = program.submit(Step(batch([2]), {"tokens": np.array([3, 4])}))
    assert program.n_runs == 1
    assert pending.outputs()["y"].tolist() == pending.outputs()["y"].tolist() == [6, 8]
    assert program.n_runs == 1


def test_a_step_that_waits_is_computed_with_the_inputs_that_come() -> None:
    program, step = Doubling(), Step(batch([2]), waits=True)
    pending = program.submit(step)
    assert program.n_runs == 0
    pending.begin({"tokens": np.array([8, 9])})
    assert {name: array.tolist() for name, array in pending.outputs().items()} == {"y": [16, 18], "tokens": [8, 9]}
    assert step.batch.tokens.tolist() == [0, 1], "the batch of who asked stays"


def test_picking_by_a_program_without_it_is_an_error() -> None:
    pending = Doubling().submit(Step(batch([1]), {"tokens": np.array([3])}, Ask([Pick(1)], np.zeros((1, 1)), 1)))
    with pytest.raises(NotImplementedError):
        next(pending.tokens())
