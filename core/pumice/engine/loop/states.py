"""Recurrent states of running sequences: kept for others with the same prefix, and restored after wrong guesses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pumice.engine.cache.blocks import BlockTables
from pumice.engine.cache.kv_cache import KVCache
from pumice.engine.placement.runner import Runner
from pumice.engine.requests.generation import Running
from pumice.engine.requests.job import Active


@dataclass(frozen=True)
class _Copy:
    """A copy of a sequence's states after ``n_past`` tokens in another slot, before ``n_computed`` others."""

    running: Running
    n_computed: int
    n_past: int
    tables: BlockTables
    slot: int

    @property
    def n_right(self) -> int:
        """Return the number of confirmed tokens computed since the copy."""
        return self.running.n_past - self.n_past

    @property
    def begun_anew(self) -> bool:
        return self.running.tables is not self.tables


class RecurrentStates:
    """Copies states between slots of sequences and of checkpoints; does nothing without recurrent states."""

    def __init__(self, runner: Runner, cache: KVCache) -> None:
        self._runner = runner
        self._cache = cache

    def keep(self, sequences: Sequence[Running]) -> None:
        """Keep the states of sequences for others."""
        sources = {}
        for running in sequences:
            if running.n_ahead:
                continue  # the state has advanced beyond it
            slot = self._cache.keep(running.tables, running.generation.tokens, running.n_past - running.n_behind)
            if slot is not None:
                sources[slot] = running.slot
        self._copy([(source, slot) for slot, source in sources.items()])

    def restore(self, running: Active) -> None:
        """Restore the states after a prefix from which a sequence continues."""
        if running.tables.checkpoint is not None:
            self._copy([(running.tables.checkpoint, running.slot)])

    @contextmanager
    def taking_back(self, sequences: Sequence[tuple[Running, int]]) -> Iterator[None]:
        """Copy states before guessed tokens; after a wrong guess, restore them and compute the right tokens again."""
        checkpoints = self._cache.checkpoints
        copies = (
            [_Copy(item, n, item.n_past, item.tables, checkpoints.take()) for item, n in sequences]
            if checkpoints
            else []
        )
        try:
            self._copy([(copy.running.slot, copy.slot) for copy in copies])
            yield
            wrong = [copy for copy in copies if copy.n_right != copy.n_computed and not copy.begun_anew]
            self._copy([(copy.slot, copy.running.slot) for copy in wrong])
            for copy in wrong:
                if copy.running.generation.finish_reason:
                    copy.running.n_behind = copy.n_right
                else:
                    copy.running.n_past, copy.running.n_again = copy.n_past, copy.n_right
        finally:
            if checkpoints is not None:
                checkpoints.give_back(copy.slot for copy in copies)

    def _copy(self, pairs: Sequence[tuple[int, int]]) -> None:
        if pairs:
            self._runner.cache.copy_slots(pairs)
