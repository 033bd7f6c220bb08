"""A step on the device: its batch, and the arrays that operations derive from it, each built once for all layers."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeVar

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from pumice.plugin.unstable import Batch, Node

Array = NDArray[Any]


class NotAlike(Exception):
    """A step asks for an array that steps of its kind did not ask for before."""


Make = Callable[["StepArrays"], Array]
"""Computes an array of a step, on the host; it is called for each step that is computed in the same way."""

T = TypeVar("T")
MOST_PACKED = 4096  # values of an array that is copied to the device with others


@dataclass(frozen=True)
class Packed:
    """Arrays of one step in one row of int32 on the device.

    ``layout``: the key of each array, its shape, and the name of its type.
    """

    row: mx.array
    layout: tuple[tuple[Hashable, tuple[int, ...], str], ...]

    def parts(self, row: mx.array) -> dict[Hashable, mx.array]:
        """Return the arrays by key from a row like this one."""
        parts: dict[Hashable, mx.array] = {}
        done = 0
        for key, shape, type in self.layout:
            begin, done = done, done + math.prod(shape)
            parts[key] = row[begin:done].view(getattr(mx, type)).reshape(shape)
        return parts


class StepArrays:
    """The arrays of one step.

    Attributes:
        batch: the step's batch.
        inputs: the segment's inputs, on the host.
        alike: the operations of this step depend only on the sizes of its arrays, so that a compiled step computes it:
            one token of each sequence.
        made: how each array was computed.
        packed: arrays that were copied to the device together; None if they are apart.
    """

    packed: Packed | None = None

    def __init__(self, batch: Batch, inputs: Mapping[str, Array], alike: bool = False) -> None:
        self.batch = batch
        self.inputs = inputs
        self.alike = alike
        self.made: dict[Hashable, Make] = {}
        self._arrays: dict[Hashable, mx.array] = {}
        self._kept: dict[Hashable, Any] = {}
        self._is_complete = False

    def array(self, key: Hashable, make: Make) -> mx.array:
        """Return the result of ``make`` on the device, cached under ``key`` for the rest of the step."""
        if key not in self._arrays:
            if self._is_complete:
                raise NotAlike(key)
            self.made[key] = make
            self._arrays[key] = mx.array(np.ascontiguousarray(make(self)))
        return self._arrays[key]

    def take(self, key: Hashable, array: mx.array) -> None:
        """Cache an array that was copied to the device with those of other steps."""
        self._arrays[key] = array

    def kept(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the result of ``make``, a value on the host, cached under ``key`` for the rest of the step."""
        if key not in self._kept:
            self._kept[key] = make()
        value: T = self._kept[key]
        return value

    def complete(self, arrays: Mapping[Hashable, mx.array]) -> None:
        """Take arrays for those that operations ask for; asking for others is an error from then on."""
        self._arrays, self._is_complete = dict(arrays), True

    @property
    def is_traced(self) -> bool:
        """True while the graph of a compiled step is built."""
        return self._is_complete

    def run(self, key: Hashable) -> Run:
        """Return the run with a key."""
        return self.kept("runs by key", lambda: {run.key: run for run in self.runs()})[key]

    def runs(self) -> list[Run]:
        """Return the sequences of the step; those with a single token form one run, computed together."""
        return self.kept("runs", lambda: list(self._runs()))

    def _runs(self) -> Iterator[Run]:
        starts = self.batch.seq_starts
        lengths = np.diff(starts)
        singles = np.flatnonzero(lengths == 1)
        if len(singles):
            yield Run(self.batch, singles, starts[singles], 1)
        for seq in np.flatnonzero(lengths > 1):
            yield Run(self.batch, np.array([seq]), starts[seq : seq + 1], int(lengths[seq]))


def uploaded(arrays: Sequence[Array]) -> list[mx.array]:
    """Return arrays on the device; consecutive ones of one shape are parts of one copy, equal ones the same array."""
    results: list[mx.array] = []
    for _, group in groupby(arrays, lambda array: array.shape):
        same = list(group)
        if all(np.array_equal(array, same[0]) for array in same[1:]):
            results += [mx.array(np.ascontiguousarray(same[0]))] * len(same)
        else:
            stacked = mx.array(np.stack(same))
            results += [row_of(stacked, i) for i in range(len(same))]
    return results


def pack(arrays: Mapping[Hashable, Sequence[Array]]) -> list[Packed]:
    """Copy arrays of consecutive steps to the device at once: for each key those of each step, of one shape."""
    layout = tuple((key, of_steps[0].shape, of_steps[0].dtype.name) for key, of_steps in arrays.items())
    rows = np.concatenate(
        [np.stack(of_steps).reshape(len(of_steps), -1).view(np.int32) for of_steps in arrays.values()], axis=1
    )
    device = mx.array(rows)
    return [Packed(row_of(device, i), layout) for i in range(len(rows))]


def row_of(array: mx.array, i: int) -> mx.array:
    """Return ``array[i]`` as a part of it, which needs no kernel; indexing by a number gathers."""
    return array[i : i + 1].reshape(array.shape[1:])


def can_pack(arrays: Sequence[Array]) -> bool:
    """Return True if arrays of consecutive steps may be parts of one copy."""
    first = arrays[0]
    return first.itemsize == 4 and first.size <= MOST_PACKED and all(array.shape == first.shape for array in arrays)


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
    """The evaluation of a node: the node, its state, the step, and the type of its products.

    ``turn``: cosines and sines of its queries and keys, if the node turns them itself.
    """

    node: Node
    state: Any
    step: StepArrays
    type: mx.Dtype
    turn: Any = None

    def rows_of(self, x: mx.array, run: Run) -> mx.array:
        """Return the tokens ``[n, length, ...]`` of a run from all tokens ``[t, ...]``."""
        if not run.is_all:
            x = x[self.step.array(("rows", run.key), lambda step: step.run(run.key).rows.reshape(-1))]
        return x.reshape(len(run.seqs), run.length, *x.shape[1:])

    def positions_of(self, run: Run) -> mx.array:
        """Return the positions as int32 ``[n, length]``."""
        return self.step.array(("positions", run.key), lambda step: step.run(run.key).positions.astype(np.int32))

    def joined(self, parts: list[tuple[Run, mx.array]]) -> mx.array:
        """Join results ``[n, length, ...]`` of all runs in batch order: ``[t, ...]``."""
        flat = [y.reshape(-1, *y.shape[2:]) for _, y in parts]
        if len(parts) == 1:
            return flat[0]
        runs = [run for run, _ in parts]
        order = self.step.array("order", lambda _: np.argsort(np.concatenate([run.rows.reshape(-1) for run in runs])))
        return mx.concatenate(flat)[order]
