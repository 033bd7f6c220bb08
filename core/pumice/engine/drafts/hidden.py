"""Hidden states of sequences, which wait until a layer that drafts reads them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from pumice.backend.step import Limits
from pumice.engine.cache.blocks import BlockTables
from pumice.engine.requests.batches import Place
from pumice.engine.requests.generation import Running

MOST_WAITING = 64  # hidden states of a sequence that wait until it drafts
Rows = NDArray[np.float32]


@dataclass(eq=False)
class Hidden:
    """The rows ``[n, n_stream]`` of a sequence from a position on, for which the layer did not run yet.

    The layer knows nothing of the ``n_skipped`` first blocks: its sequence begins after them. It has run for the first
    ``n_read`` rows.
    """

    tables: BlockTables
    first: int
    parts: list[Rows] = field(repr=False)
    n_skipped: int = 0
    n_read: int = 0
    n_rows: int = field(init=False)

    def __post_init__(self) -> None:
        self.n_rows = sum(map(len, self.parts))

    @property
    def end(self) -> int:
        return self.first + self.n_rows

    @property
    def rows(self) -> Rows:
        """All rows; they are joined when they are read."""
        if len(self.parts) > 1:
            self.parts = [np.concatenate(self.parts)]
        return self.parts[0]

    def append(self, rows: Rows) -> None:
        self.parts.append(rows)
        self.n_rows += len(rows)

    def drop(self, n: int) -> None:
        """Forget the first ``n`` rows."""
        self.n_read = max(0, self.n_read - n)
        self.parts = [self.rows[n:].copy()]
        self.first, self.n_rows = self.first + n, self.n_rows - n


class HiddenStates:
    """The hidden states of all sequences.

    The state before the first position, or before the end of a cached prefix, is unknown, and replaced by zeros; that
    affects proposals only. Behind steps that were not heard, states are kept from the next block on, as if the text
    began there.

    Args:
        limits: the steps of the model.
        n_before: states before the first position that the layer reads: 1, or 0.
        skips: False if the layer has no cache, so that it needs no blocks of its own.
    """

    def __init__(self, limits: Limits, n_before: int = 1, skips: bool = True) -> None:
        self._limits = limits
        self._n_before = n_before
        self._skips = skips
        self._of: WeakKeyDictionary[Place, Hidden] = WeakKeyDictionary()

    def __getitem__(self, running: Running) -> Hidden:
        return self._of[running]

    def __len__(self) -> int:
        return len(self._of)

    def known(self, running: Running) -> bool:
        """Return True if the states of a sequence are known up to that before its last token."""
        kept = self._of.get(running)
        return kept is not None and kept.tables is running.tables and kept.end == len(running.generation.tokens) - 1

    def n_skipped(self, place: Place) -> int:
        """Return the number of first blocks of a sequence of which the layer knows nothing."""
        kept = self._of.get(place)
        return kept.n_skipped if kept else 0

    def keep(self, running: Running, first: int, rows: Rows) -> None:
        """Keep the states of positions from ``first`` on; those computed again after a wrong draft are kept already."""
        kept = self._of.get(running)
        if kept is None or kept.tables is not running.tables or first > kept.end or self._begins_later(kept, first):
            n_skipped = self._skipped(running, first)
            first_kept = max(first, n_skipped * self._limits.block_size) - self._n_before
            unknown = np.zeros((self._n_before, rows.shape[1]), np.float32)
            kept = self._of[running] = Hidden(running.tables, first_kept, [unknown], n_skipped)
        if first + len(rows) > kept.end:
            kept.append(rows[kept.end - first :])

    def most_waiting(self) -> int:
        """Return the maximum number of states of a sequence that wait.

        They lie within all attention windows, since blocks outside of a window belong to other sequences.
        """
        limits = self._limits
        in_windows = (window - 1 for window in limits.n_blocks if window)
        return max(1, min(MOST_WAITING, limits.n_batch // limits.n_seqs, *in_windows))

    def went_on(self, sequences: Collection[Running], lost: Collection[Running]) -> None:
        """Note that the layer has read all states that it needs for the last token, except of ``lost`` sequences."""
        for running in sequences:
            kept = self._of.get(running)
            if running in lost:
                self._of.pop(running, None)
            elif kept is not None:
                first = len(running.generation.tokens) - 1 - self._n_before
                unknown = np.zeros((self._n_before, kept.rows.shape[1]), np.float32)
                self._of[running] = Hidden(running.tables, first, [unknown], kept.n_skipped, n_read=self._n_before)

    def drop(self, running: Running) -> None:
        """Forget a sequence."""
        self._of.pop(running, None)

    def clear(self) -> None:
        """Forget all sequences."""
        self._of.clear()

    def _begins_later(self, kept: Hidden, first: int) -> bool:
        """Return True if a sequence was to begin at a block behind ``first``, which is computed again."""
        return first < kept.end == kept.n_skipped * self._limits.block_size

    def _skipped(self, running: Running, first: int) -> int:
        """Return the number of blocks before which the layer did not run: none if ``first`` is behind cached tokens."""
        is_cached = first <= running.generation.timings.prompt_cached
        return -(-first // self._limits.block_size) if self._skips and not is_cached else 0
