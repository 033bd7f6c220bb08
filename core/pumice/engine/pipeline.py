"""Pipeline parallelism: programs of consecutive segments, one a device, that compute steps one behind the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from pumice.backend import KernelTime, Program
from pumice.graph import Segment, concrete
from pumice.pick import Ahead, Ask, Raw
from pumice.step import Batch

if TYPE_CHECKING:
    from pumice.backend import Array, Pending

MAX_STEPS = 16  # in a row: what their tokens are, the host sees only after the last


@dataclass(eq=False)
class _Step:
    """A batch on its way through the programs."""

    values: dict[str, Array]
    batch: Batch
    pending: Pending | None = None  # what a program has not given yet
    kept: frozenset[str] = frozenset()  # of that, what is used later than by the next program

    def collect(self) -> None:
        """Wait for the program; what it gives is its own, and is overwritten when it runs again."""
        if self.pending is not None:
            results, self.pending = self.pending(), None
            self.values |= {name: array.copy() if name in self.kept else array for name, array in results.items()}


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
        self._at: list[_Step | None] = [None] * len(programs)  # the step that each program computes
        n_devices = len({(segment.backend, segment.device) for segment in segments})
        self._lets_go = segments[-1].gives_logits and n_devices == len(segments)

    def run(self, inputs: Mapping[str, Array], batch: Batch) -> Mapping[str, Array]:
        step = _Step(dict(inputs), batch)
        with self._losing(step):
            self._advance(step)
            if self._lets_go and len(batch.output_ids) == 0:
                return {self._logits.name: np.empty(concrete(self._logits.shape, batch.sizes), np.float32)}
            while self._at[-1] is not step:
                self._advance(None)
            step.collect()
            self._at[-1] = None
        return step.values

    @contextmanager
    def _losing(self, step: _Step | None = None) -> Iterator[None]:
        """Note whether an error takes with it more than this step."""
        self._lost = False
        try:
            yield
        except BaseException:
            self._lost = any(other not in (None, step) for other in self._at)
            self._at = [None] * len(self._programs)
            raise

    @property
    def lost(self) -> bool:
        return self._lost

    def finish(self) -> None:
        with self._losing():
            while any(step is not None for step in self._at):
                self._advance(None)

    def _advance(self, entering: _Step | None) -> None:
        """Every step to the next program, all of which compute at once; waits for the first one only."""
        for step in self._at:
            if step is not None:
                step.collect()
        for i in reversed(range(len(self._programs))):  # a program's results are read before it runs again
            step = self._at[i] = self._at[i - 1] if i else entering
            if step is not None:
                step.pending, step.kept = self._programs[i].submit(step.values, step.batch), self._kept[i]
        if entering is not None:
            entering.collect()

    @property
    def max_steps(self) -> int:
        return MAX_STEPS if self._programs[-1].max_steps else 0

    @property
    def max_best(self) -> int:
        return self._programs[-1].max_best

    def run_ahead(self, batch: Batch, ask: Ask, inputs: Mapping[str, Array] | None = None) -> Ahead:
        return _joined(list(self.steps_ahead(batch, ask)))

    @property
    def decides(self) -> bool:
        return self._programs[-1].decides

    @property
    def max_adjustments(self) -> tuple[int, int]:
        return self._programs[-1].max_adjustments

    @property
    def max_added(self) -> int:
        return self._programs[-1].max_added

    def steps_ahead(self, batch: Batch, ask: Ask) -> Iterator[Ahead]:
        """The last program picks each token, and the first goes on with it before anybody looks at it."""
        self.finish()
        *before, last = self._programs
        values, pending = dict(self._inputs_of(batch)), _nothing
        if before:
            pending = before[0].submit(values, batch)
        pasts = ask.pasts
        for n_left, drawn in zip(range(len(ask.numbers))[::-1], ask.numbers[:, None], strict=True):
            # While the first computes, all that comes behind it is prepared.
            others = [program.prepare(batch) for program in before[1:]]
            picking = last.prepare_ahead(batch, replace(ask, numbers=drawn, pasts=pasts))
            batch = replace(batch, positions=batch.positions + 1)
            following = dict(self._inputs_of(batch))
            beginning = before[0].prepare(batch) if before and n_left else _beginning_nothing
            values |= pending()
            for begin in others:
                values |= begin(values)()
            ahead = picking(values)
            if n_left:
                values = following | {"tokens": ahead.picked[0]}
                pending = beginning(values)
                batch.tokens = ahead.picked[0]
                pasts = [[*past, token] for past, token in zip(pasts, ahead.picked[0].tolist(), strict=False)]
            yield ahead

    def copy_slots(self, pairs: Sequence[tuple[int, int]]) -> None:
        self.finish()
        for program in self._programs:
            if program.copies_slots:
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


def _joined(steps: Sequence[Ahead]) -> Ahead:
    """What steps one behind the other gave."""
    found = zip(*((step.ids, step.logits, step.picked) for step in steps), strict=True)
    raws = [(raw.ids, raw.logits, raw.picked, raw.totals) for step in steps if (raw := step.raw)]
    raw = Raw(*(np.concatenate(arrays) for arrays in zip(*raws, strict=True))) if raws else None
    ids, logits, picked = (np.concatenate(arrays) for arrays in found)
    return Ahead(ids, logits, picked, raw)


def _nothing() -> Mapping[str, Array]:
    return {}


def _beginning_nothing(inputs: Mapping[str, Array]) -> Pending:
    return _nothing


def _used_later(segments: Sequence[Segment], i: int) -> frozenset[str]:
    """The outputs of segment ``i`` that are not only inputs of the next."""
    taken = {tensor for segment in segments[i + 2 :] for tensor in segment.inputs}
    return frozenset(tensor.name for tensor in segments[i].outputs if tensor in taken)
