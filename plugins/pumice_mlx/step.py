"""A step on the device: its batch, and the arrays that operations derive from it, each built once for all layers."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from pumice.plugin import Batch, Node

Array = NDArray[Any]


class StepArrays:
    """The arrays of one step. ``inputs`` are the segment's, on the host."""

    def __init__(self, batch: Batch, inputs: Mapping[str, Array]) -> None:
        self.batch = batch
        self.inputs = inputs
        self._arrays: dict[Hashable, mx.array] = {}

    def array(self, key: Hashable, make: Callable[[], Array]) -> mx.array:
        """Return the result of ``make`` on the device, cached under ``key`` for the rest of the step."""
        if key not in self._arrays:
            self._arrays[key] = mx.array(np.ascontiguousarray(make()))
        return self._arrays[key]

    def runs(self) -> Iterator[Run]:
        """Yield the sequences of the step; those with a single token form one run, computed together."""
        starts = self.batch.seq_starts
        lengths = np.diff(starts)
        singles = np.flatnonzero(lengths == 1)
        if len(singles):
            yield Run(self.batch, singles, starts[singles], 1)
        for seq in np.flatnonzero(lengths > 1):
            yield Run(self.batch, np.array([seq]), starts[seq : seq + 1], int(lengths[seq]))


@dataclass(frozen=True)
class Run:
    """Sequences of a step with ``length`` tokens each; ``starts`` are their first rows in the batch."""

    batch: Batch
    seqs: NDArray[np.integer]
    starts: NDArray[np.integer]
    length: int

    @property
    def key(self) -> Hashable:
        """Key of the run within its step: its first sequence."""
        return int(self.seqs[0])

    @property
    def rows(self) -> NDArray[np.integer]:
        """Rows of the batch: ``[n, length]``."""
        return self.starts[:, None] + np.arange(self.length)

    @property
    def positions(self) -> NDArray[np.integer]:
        """Positions of the tokens: ``[n, length]``."""
        return self.batch.positions[self.rows]

    def split(self) -> list[Run]:
        """Return a run for each sequence."""
        return [
            Run(self.batch, self.seqs[i : i + 1], self.starts[i : i + 1], self.length) for i in range(len(self.seqs))
        ]

    @property
    def is_all(self) -> bool:
        """True if the run is the whole step, in batch order."""
        return len(self.seqs) == len(self.batch.slots)


@dataclass(frozen=True)
class Evaluation:
    """The evaluation of a node: the node, its state, the step, and the type of its products."""

    node: Node
    state: Any
    step: StepArrays
    type: mx.Dtype

    def rows_of(self, x: mx.array, run: Run) -> mx.array:
        """Return the tokens ``[n, length, ...]`` of a run from all tokens ``[t, ...]``."""
        if not run.is_all:
            x = x[self.step.array(("rows", run.key), lambda: run.rows.reshape(-1))]
        return x.reshape(len(run.seqs), run.length, *x.shape[1:])

    def positions_of(self, run: Run) -> mx.array:
        """Return the positions as int32 ``[n, length]``."""
        return self.step.array(("positions", run.key), lambda: run.positions.astype(np.int32))

    def joined(self, parts: list[tuple[Run, mx.array]]) -> mx.array:
        """Join results ``[n, length, ...]`` of all runs in batch order: ``[t, ...]``."""
        flat = [y.reshape(-1, *y.shape[2:]) for _, y in parts]
        if len(parts) == 1:
            return flat[0]
        runs = [run for run, _ in parts]
        order = self.step.array("order", lambda: np.argsort(np.concatenate([run.rows.reshape(-1) for run in runs])))
        return mx.concatenate(flat)[order]
