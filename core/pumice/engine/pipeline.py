"""Pipeline parallelism: programs of consecutive segments, one a device, that compute steps one behind the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from pumice.backend import KernelTime, Program
from pumice.graph import Segment, concrete
from pumice.pick import Ahead, Ask
from pumice.step import Batch, Pending, Step

if TYPE_CHECKING:
    from pumice.backend import Array

MAX_STEPS = 16  # in a row: what their tokens are, the host sees only after the last


@dataclass(eq=False)
class _Stay:
    """A batch on its way through the programs."""

    values: dict[str, Array]
    batch: Batch
    pending: Pending | None = None  # what a program has not given yet
    kept: frozenset[str] = frozenset()  # of that, what is used later than by the next program

    def collect(self) -> None:
        """Wait for the program; what it gives is its own, and is overwritten when it runs again."""
        if self.pending is not None:
            results, self.pending = self.pending.outputs(), None
            self.values |= {name: array.copy() if name in self.kept else array for name, array in results.items()}


class _Picking(Pending):
    """Steps whose tokens are computed one by one, when they are asked for."""

    def __init__(self, tokens: Iterator[Ahead]) -> None:
        self._tokens = tokens

    def tokens(self) -> Iterator[Ahead]:
        return self._tokens


class Pipeline(Program):
    """The programs of a graph's segments, in order. Values go from one to the others through the host.

    A step whose logits nobody wants, one of a long prompt, is let go when the first program has computed it. The others
    do so while the first computes the next step. All compute the steps in the order in which they come.

    ``inputs_of`` gives the graph's inputs for a batch.
    """

    def __init__(
        self,
        segments: Sequence[Segment],
        programs: Sequence[Program],
        inputs_of: Callable[[Batch], Mapping[str, Array]],
    ) -> None:
        self._programs = programs
        self._logits = segments[-1].outputs[-1]
        self._inputs_of = inputs_of
        self._lost = False
        self._kept = [_used_later(segments, i) for i in range(len(segments))]
        self._at: list[_Stay | None] = [None] * len(programs)  # the step that each program computes
        n_devices = len({(segment.backend, segment.device) for segment in segments})
        self._lets_go = segments[-1].gives_logits and n_devices == len(segments)
        last = programs[-1].capabilities
        n_steps = MAX_STEPS if last.max_steps else 0
        self.capabilities = replace(last, max_steps=n_steps, copies_slots=False, n_in_flight=1, follows=False)

    def run(self, step: Step) -> Mapping[str, Array]:
        stay = _Stay(dict(step.inputs), step.batch)
        with self._losing(stay):
            self._advance(stay)
            if self._lets_go and len(step.batch.output_ids) == 0:
                return {self._logits.name: np.empty(concrete(self._logits.shape, step.batch.sizes), np.float32)}
            while self._at[-1] is not stay:
                self._advance(None)
            stay.collect()
            self._at[-1] = None
        return stay.values

    def submit(self, step: Step) -> Pending:
        return _Picking(self._pick(step, step.ask)) if step.ask else super().submit(step)

    @contextmanager
    def _losing(self, stay: _Stay | None = None) -> Iterator[None]:
        """Note whether an error takes with it more than this step."""
        self._lost = False
        try:
            yield
        except BaseException:
            self._lost = any(other not in (None, stay) for other in self._at)
            self._at = [None] * len(self._programs)
            raise

    @property
    def lost(self) -> bool:
        return self._lost

    def finish(self) -> None:
        with self._losing():
            while any(stay is not None for stay in self._at):
                self._advance(None)

    def _advance(self, entering: _Stay | None) -> None:
        """Every step to the next program, all of which compute at once; waits for the first one only."""
        for stay in self._at:
            if stay is not None:
                stay.collect()
        for i in reversed(range(len(self._programs))):  # a program's results are read before it runs again
            stay = self._at[i] = self._at[i - 1] if i else entering
            if stay is not None:
                stay.pending, stay.kept = self._programs[i].submit(Step(stay.batch, stay.values)), self._kept[i]
        if entering is not None:
            entering.collect()

    def _pick(self, step: Step, ask: Ask) -> Iterator[Ahead]:
        """The last program picks each token, and the first goes on with it before anybody looks at it."""
        self.finish()
        *before, last = self._programs
        batch, values, pasts = step.batch, dict(step.inputs), ask.pasts
        pending = before[0].submit(Step(batch, values)) if before else None
        for n_left, drawn in zip(range(len(ask.numbers))[::-1], ask.numbers[:, None], strict=True):
            # While the first computes, all that comes behind it is prepared.
            others = [program.submit(Step(batch, waits=True)) for program in before[1:]]
            picking = last.submit(Step(batch, ask=replace(ask, numbers=drawn, pasts=pasts), waits=True))
            batch = replace(batch, positions=batch.positions + 1)
            following = dict(self._inputs_of(batch))
            beginning = before[0].submit(Step(batch, waits=True)) if before and n_left else None
            if pending:
                values |= pending.outputs()
            for other in others:
                other.begin(values)
                values |= other.outputs()
            picking.begin(values)
            ahead = next(picking.tokens())
            if n_left:
                values = following | {"tokens": ahead.picked[0]}
                if beginning:
                    beginning.begin(values)
                pending = beginning
                batch.tokens = ahead.picked[0]
                pasts = [[*past, token] for past, token in zip(pasts, ahead.picked[0].tolist(), strict=False)]
            yield ahead

    def copy_slots(self, pairs: Sequence[tuple[int, int]]) -> None:
        self.finish()
        for program in self._programs:
            if program.capabilities.copies_slots:
                program.copy_slots(pairs)

    @property
    def memory(self) -> dict[str, int]:
        total: dict[str, int] = {}
        for program in self._programs:
            for purpose, n_bytes in program.memory.items():
                total[purpose] = total.get(purpose, 0) + n_bytes
        return total

    def profile(self) -> list[KernelTime]:
        self.finish()
        return [kernel for program in self._programs for kernel in program.profile()]

    def close(self) -> None:
        self._at = [None] * len(self._programs)
        for program in self._programs:
            program.close()


def _used_later(segments: Sequence[Segment], i: int) -> frozenset[str]:
    """The outputs of segment ``i`` that are not only inputs of the next."""
    taken = {tensor for segment in segments[i + 2 :] for tensor in segment.inputs}
    return frozenset(tensor.name for tensor in segments[i].outputs if tensor in taken)
