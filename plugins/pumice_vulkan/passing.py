"""Copies on the device from results of pending steps to the inputs and fields of a step behind them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from pumice.plugin.unstable import Batch, Pending
from pumice_vulkan.device import Buffer
from pumice_vulkan.step import StepLayout

if TYPE_CHECKING:
    from pumice_vulkan.host_memory import HostMemory


class Copy(NamedTuple):
    """A copy of ``n_bytes`` between buffers, from and to an offset in bytes.

    ``again``: also before each later one of consecutive steps.
    """

    source: Buffer
    begin: int
    target: Buffer
    to: int
    n_bytes: int
    again: bool = False


Found = tuple[Buffer, int]
"""A buffer and an offset in bytes."""


class Results(Protocol):
    """A pending step of this backend, whose results are on the device."""

    def output_place(self, name: str) -> Found:
        """Return where an output is."""

    def token_place(self, step: int, row: int) -> Found:
        """Return where the token that a step picks in a row is."""

    def last_row_place(self, sequence: int) -> Found:
        """Return where the row of the latest token of a sequence is, of a step that verifies drafts."""

    def position_place(self, sequence: int, n: int) -> Found:
        """Return where the position ``n`` behind that behind the latest token of a sequence is, of such a step."""

    def latest_token_place(self, sequence: int) -> Found:
        """Return where the latest token of a sequence is, of such a step."""


def copies_of(batch: Batch, host: HostMemory, layout: StepLayout, n_rows: int) -> tuple[Copy, ...]:
    """Return the copies before a step whose inputs, tokens, outputs or positions follow from pending steps.

    Args:
        batch: the batch.
        host: memory of the program of the step.
        layout: of its step block.
        n_rows: rows of the bucket of the step. All are copied, so that batches of a bucket have the same copies.
    """
    positions = _positions(batch, host, layout)
    return (*_inputs(batch, host, n_rows), *_fields(batch, host.step, layout), *positions)


def _inputs(batch: Batch, host: HostMemory, n_rows: int) -> Iterator[Copy]:
    for name, passed in batch.passed.items():
        source, target = _results(passed.pending).output_place(passed.output), host.input_place(name)
        yield Copy(*source, *target, n_rows * host.row_bytes(name))


def _fields(batch: Batch, step: Buffer, layout: StepLayout) -> Iterator[Copy]:
    for passed in batch.passed_tokens:
        results = _results(passed.pending)
        for index, rows in enumerate(passed.rows.tolist()):
            for row, to in enumerate(rows):
                yield Copy(*results.token_place(index, row), step, 4 * (layout.tokens + to), 4)
    if batch.outputs_of:
        results = _results(batch.outputs_of)
        for sequence in range(len(batch.slots)):
            yield Copy(*results.last_row_place(sequence), step, 4 * (layout.output_ids + sequence), 4)


def _positions(batch: Batch, host: HostMemory, layout: StepLayout) -> Iterator[Copy]:
    if batch.positions_of is None:
        return
    passed, results, step = batch.positions_of, _results(batch.positions_of.pending), host.step
    for sequence, (begin, end) in enumerate(pairwise(batch.seq_starts.tolist())):
        n_bytes = 4 * (end - begin)
        yield Copy(*results.position_place(sequence, passed.first), step, 4 * (layout.positions + begin), n_bytes)
        for name, first in passed.inputs.items():
            target, to = host.input_place(name)
            yield Copy(*results.position_place(sequence, first), target, to + 4 * begin, n_bytes, again=True)
        if passed.takes_token:
            yield Copy(*results.latest_token_place(sequence), step, 4 * (layout.tokens + begin), 4)


def _results(pending: Pending) -> Results:
    return cast(Results, pending.unwrapped())
