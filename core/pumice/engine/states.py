"""Recurrent states of running sequences: kept for others that begin alike, and taken back after wrong guesses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pumice.engine.generation import Running
from pumice.engine.kv_cache import BlockTables, KVCache
from pumice.engine.runner import Runner


@dataclass(frozen=True)
class _Copy:
    """A sequence's states after ``n_past`` tokens, in another slot."""

    running: Running
    n_past: int
    tables: BlockTables
    slot: int

    @property
    def n_right(self) -> int:
        """Tokens of the sequence that were computed since."""
        return self.running.n_past - self.n_past

    @property
    def begun_anew(self) -> bool:
        return self.running.tables is not self.tables


class RecurrentStates:
    """Copies states between the slots of sequences and those of checkpoints; nothing to do where there are none."""

    def __init__(self, runner: Runner, cache: KVCache) -> None:
        self._runner = runner
        self._cache = cache

    def keep(self, sequences: Sequence[Running]) -> None:
        """Keep the states of sequences for others."""
        kept = {}
        for each in sequences:
            if each.n_ahead:
                continue  # the state there is gone
            slot = self._cache.keep(each.tables, each.generation.tokens, each.n_past - each.n_behind)
            if slot is not None:
                kept[slot] = each.slot
        self._copy([(source, slot) for slot, source in kept.items()])

    def restore(self, running: Running) -> None:
        """Give a sequence that goes on after a prefix the states there."""
        if running.tables.checkpoint is not None:
            self._copy([(running.tables.checkpoint, running.slot)])

    @contextmanager
    def taking_back(self, sequences: Sequence[Running], n_steps: int) -> Iterator[None]:
        """Compute ``n_steps`` guessed tokens of each; where one was wrong, what was right is computed again."""
        checkpoints = self._cache.checkpoints
        copies = (
            [_Copy(each, each.n_past, each.tables, checkpoints.take()) for each in sequences] if checkpoints else []
        )
        try:
            self._copy([(copy.running.slot, copy.slot) for copy in copies])
            yield
            wrong = [copy for copy in copies if copy.n_right != n_steps and not copy.begun_anew]
            self._copy([(copy.slot, copy.running.slot) for copy in wrong])
            for copy in wrong:
                if copy.running.generation.finish_reason:
                    copy.running.n_behind = copy.n_right
                else:
                    copy.running.n_past = copy.n_past
        finally:
            if checkpoints is not None:
                checkpoints.give_back(copy.slot for copy in copies)

    def _copy(self, pairs: Sequence[tuple[int, int]]) -> None:
        if pairs:
            self._runner.copy_slots(pairs)
