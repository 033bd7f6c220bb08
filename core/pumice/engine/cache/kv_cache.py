"""The paged KV cache as the engine sees it: block tables (Kwon et al. 2023, arXiv:2309.06180).

The bytes belong to the backends.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray

from pumice.backend.step import Limits
from pumice.engine.cache.blocks import BlockPool, BlockTables, Checkpoints, key_of, oldest_block
from pumice.engine.cache.tiers import STATES, Tiers

FIRST_MARK = 512
"""Tokens of a prompt after which its state is first kept, then after twice, four times, ... as many."""


class KVCache:
    """Allocates blocks of the KV cache to sequences.

    Blocks outside of their layers' window are released at once. With ``share_prefixes`` a new sequence starts with the
    blocks of an equal prefix and salt, and takes over the last, incomplete block of an ended sequence: it continues at
    the first token that differs.

    With ``checkpoints``, for models with recurrent states, it continues where one is kept.

    With ``tiers``, blocks and checkpoints that leave the device are found there, and a new sequence may load them.
    """

    def __init__(self, limits: Limits, share_prefixes: bool = True, checkpoints: Checkpoints | None = None) -> None:
        self._block_size = limits.block_size
        self.n_batch = limits.n_batch
        self._n_max = -(-limits.n_ctx // limits.block_size)
        self._pools: Mapping[int, BlockPool] = {w: BlockPool(n) for w, n in limits.n_blocks.items()}
        self.checkpoints = checkpoints
        self.shares_prefixes = share_prefixes and (bool(self._pools) or checkpoints is not None)
        # Key of the preceding blocks -> tokens of last, incomplete blocks that may still exist.
        self._tails: dict[bytes, list[list[int]]] = {}
        self._most_tails = 64  # maximum keys before outdated ones are removed
        self.tiers: Tiers | None = None

    def spill_to(self, tiers: Tiers) -> None:
        """Let blocks and checkpoints without a tail move to tiers from now on."""
        self.tiers = tiers
        tiers.stand_behind(self._pools, self.checkpoints)

    def save(self, tokens: Sequence[int], salt: bytes) -> Generator[None, None, int]:
        """Write the cached blocks of a sequence to disk; return how many of its first tokens are on disk."""
        if not self.shares_prefixes or self.tiers is None or not tokens:
            return 0
        return (yield from self.tiers.save(self.tables_of(tokens, salt).keys))

    def tables_of(self, tokens: Sequence[int], salt: bytes) -> BlockTables:
        """Return tables without blocks, with the keys of the full blocks before the last token."""
        tables = BlockTables(list(self._pools), self._n_max, self._block_size, salt)
        for index in range((len(tokens) - 1) // self._block_size if self.shares_prefixes else 0):
            tables.keys.append(tables.key(index, tokens))
        return tables

    def begin(self, tokens: Sequence[int], salt: bytes = b"", loads: bool = True) -> tuple[BlockTables, int]:
        """Return tables for a new sequence, and the number of its first tokens that they already hold.

        If more can be loaded from tiers, the tables want it, and the number is 0 until ``load`` has ended. ``loads``:
        whether to look there.
        """
        tables = self.tables_of(tokens, salt)
        n_shared, tail = 0, tokens[:0]
        if self.shares_prefixes:
            n_shared, tail = self._shared(tokens, tables)
            if self.tiers:
                n_text = next((i for i, token in enumerate(tokens) if token < 0), len(tokens))
                tables.portable = n_shared * self._block_size <= n_text
                n_past = n_shared * self._block_size + (len(tail) if self.checkpoints else 0)
                if loads and (n_target := self.tiers.n_loadable(tables.keys[: n_text // self._block_size], n_past)):
                    tables.wanted, tables.checkpoint, tail = tables.keys[:n_target], None, tokens[:0]
                    n_shared = min(n_shared, n_target)
        n_coming = len(tables.wanted) or n_shared
        for window, pool in self._pools.items():
            for index in range(oldest_block(window, n_coming * self._block_size, self._block_size), n_shared):
                tables.tables[window][index] = pool.share(tables.keys[index])
        del tables.keys[n_shared:]
        tables.n_blocks = n_shared
        if tables.wanted:
            tables.marks = [mark for mark in tables.marks if mark > len(tables.wanted) * self._block_size]
            return tables, 0
        n_past = n_shared * self._block_size + (self._take_over(tables, tail) if self._pools else len(tail))
        tables.marks = [mark for mark in tables.marks if mark > n_past]
        return tables, n_past

    def extend(self, tables: BlockTables, n_past: int, n_new: int) -> bool:
        """Hold blocks for ``n_new`` positions after ``n_past``; return False, unchanged, if too few are available."""
        for window in self._pools:
            if window:
                self._slide(tables, window, n_past)
        missing = self.missing(tables, n_past, n_new)
        if not missing:
            return True
        if missing > self.available:
            return False
        tables.changed()
        for window, pool in self._pools.items():
            for index in range(tables.n_blocks, tables.n_blocks + missing):
                tables.tables[window][index] = pool.take()
        tables.n_blocks += missing
        return True

    def covers(self, tables: BlockTables, n: int) -> bool:
        """Return True if the tables have entries for the first ``n`` positions."""
        return not self._pools or tables.n_blocks * self._block_size >= n

    def missing(self, tables: BlockTables, n_past: int, n_new: int) -> int:
        """Return the number of blocks that ``extend`` would take, per window."""
        return max(0, -(-(n_past + n_new) // self._block_size) - tables.n_blocks)

    def fits(self, demand: Counter[int]) -> bool:
        """Return True if there are blocks for a demand per window."""
        return all(demand[window] <= pool.available for window, pool in self._pools.items())

    def demand(self, tables: BlockTables, n: int) -> Counter[int]:
        """Return the blocks per window that a sequence takes until ``n`` positions are held, minus those that leave."""
        missing, demand = self.missing(tables, 0, n), Counter[int]()
        for window in self._pools:
            demand[window] = missing
            if window and missing:
                reach = -(-(window + self.n_batch) // self._block_size) + 1
                held = int(np.count_nonzero(tables.tables[window][: tables.n_blocks] >= 0))
                demand[window] = min(missing, max(0, reach - held))
        return demand

    @property
    def available(self) -> int:
        """Return the number of available blocks of the scarcest window."""
        return min((pool.available for pool in self._pools.values()), default=sys.maxsize)

    @property
    def free(self) -> dict[int, int]:
        """Return the number of blocks without holders, per window."""
        return {window: pool.available for window, pool in self._pools.items()}

    def publish(self, tables: BlockTables, tokens: Sequence[int], n_past: int) -> None:
        """Make the blocks filled by the first ``n_past`` tokens available to later equal prefixes."""
        if not self.shares_prefixes:
            return
        for index in range(len(tables.keys), n_past // self._block_size):
            tables.keys.append(tables.key(index, tokens))
            if self.checkpoints is not None:
                self.checkpoints.see(tables.keys[index])
            first = index * self._block_size
            tables.portable = tables.portable and min(tokens[first : first + self._block_size]) >= 0
            for window, pool in self._pools.items():
                if tables.tables[window][index] >= 0:
                    pool.publish(int(tables.tables[window][index]), tables.keys[index])
                    if self.tiers and tables.portable:
                        self.tiers.offer(window, tables.keys[index], index + 1)

    def keep(self, tables: BlockTables, tokens: Sequence[int], n_past: int) -> int | None:
        """Return the slot for a copy of the recurrent state after ``n_past`` tokens; None if it is not kept."""
        if self.checkpoints is None or not n_past:
            return None
        n_full = n_past // self._block_size
        first, parent = n_full * self._block_size, tables.parent(n_full)
        if n_past > first and n_full < len(tables.keys):  # a block that has become full is taken over, too
            self._know_tail(parent, list(tokens[first : first + self._block_size]))
        slot = self.checkpoints.keep(parent, tokens[first:n_past])
        if self.tiers and slot is not None and n_past == first and tables.portable:
            self.tiers.offer(STATES, parent, n_full)
        return slot

    def release(self, tables: BlockTables, tokens: Sequence[int] = ()) -> None:
        """Release all blocks. ``tokens`` are those computed; a later sequence may continue in the last block."""
        if self.shares_prefixes:
            self._publish_tail(tables, tokens)
        for window, pool in self._pools.items():
            for block in reversed(tables.tables[window][: tables.n_blocks].tolist()):
                if block >= 0:
                    pool.release(block)
            tables.tables[window][:] = -1
        tables.n_blocks = 0
        tables.keys.clear()

    def forget(self) -> None:
        """Forget everything that was published."""
        self._tails.clear()
        if self.tiers:
            self.tiers.forget()
        if self.checkpoints is not None:
            self.checkpoints.forget()
        for pool in self._pools.values():
            pool.forget()

    def _publish_tail(self, tables: BlockTables, tokens: Sequence[int]) -> None:
        n_full = len(tables.keys)
        tail = list(tokens[n_full * self._block_size :])
        if not 0 < len(tail) < self._block_size:  # a longer tail has full blocks that were not published
            return
        parent = tables.parent(n_full)
        for window, pool in self._pools.items():
            pool.publish(int(tables.tables[window][n_full]), key_of(parent, tail))
        self._know_tail(parent, tail)

    def _know_tail(self, parent: bytes, tail: list[int]) -> None:
        tails = [other for other in self._known_tails(parent) if other != tail]
        self._tails[parent] = [*tails, tail]
        if len(self._tails) > self._most_tails:
            self._tails = {parent: tails for parent in self._tails if (tails := self._known_tails(parent))}
            self._most_tails = 2 * len(self._tails) + 64

    def _take_over(self, tables: BlockTables, tokens: Sequence[int]) -> int:
        """Continue in the last block that shares most of ``tokens``; return the number of shared tokens."""
        parent = tables.parent(tables.n_blocks)
        tails = self._known_tails(parent)
        n_same, tail = max(((n_equal(tail, tokens), tail) for tail in tails), default=(0, []))
        if n_same:
            tails.remove(tail)
            for window, pool in self._pools.items():
                tables.tables[window][tables.n_blocks] = pool.claim(key_of(parent, tail))
            tables.n_blocks += 1
            self._tails[parent] = tails
        return n_same

    def _known_tails(self, parent: bytes) -> list[list[int]]:
        """Return the known tails, without those whose blocks were reused."""
        tails = [(tail, key_of(parent, tail)) for tail in self._tails.get(parent, [])]
        return [tail for tail, key in tails if all(pool.is_idle(key) for pool in self._pools.values())]

    def batch_tables(self, sequences: Sequence[BlockTables]) -> dict[int, NDArray[np.int32]]:
        """Return the tables of several sequences for a batch, one per row."""
        width = max(tables.n_blocks for tables in sequences)
        return {w: np.array([tables.tables[w][:width] for tables in sequences]) for w in self._pools}

    def _shared(self, tokens: Sequence[int], tables: BlockTables) -> tuple[int, Sequence[int]]:
        """Return the number of shareable leading blocks, and the tokens to look for in a last block after them.

        At least one token remains to be computed.
        """
        tables.marks = self._marks(tables.keys, len(tokens)) if self.checkpoints is not None else []
        for n_shared in range(len(tables.keys), -1, -1):
            if all(
                pool.knows(key)
                for window, pool in self._pools.items()
                for key in tables.keys[oldest_block(window, n_shared * self._block_size, self._block_size) : n_shared]
            ):
                rest = tokens[n_shared * self._block_size : -1]
                if self.checkpoints is None:
                    return n_shared, rest
                tail = self._kept(tables.parent(n_shared), rest)
                if tail is not None:
                    tables.checkpoint = self.checkpoints.find(tables.parent(n_shared), tail)
                    return n_shared, tail
        return 0, tokens[:0]

    def _kept(self, parent: bytes, rest: Sequence[int]) -> Sequence[int] | None:
        """Return the beginning of ``rest`` for which a recurrent state, keys and values exist; None without one."""
        assert self.checkpoints is not None
        for tail in self.checkpoints.tails(parent):
            n = len(tail)
            if tuple(rest[:n]) == tail and (
                not (n and self._pools) or any(tuple(other[:n]) == tail for other in self._known_tails(parent))
            ):
                return tail
        return None

    def _marks(self, keys: Sequence[bytes], n_tokens: int) -> list[int]:
        """Return the numbers of tokens of a prompt after which the state is kept.

        These are where it diverges from earlier prompts (Pan et al. 2024, arXiv:2411.19379), at doubling numbers, and
        after its last full block.
        """
        assert self.checkpoints is not None
        n_seen = sum(1 for _ in takewhile(self.checkpoints.seen, keys)) * self._block_size
        doubled = takewhile(lambda mark: mark < n_tokens, (FIRST_MARK << i for i in range(32)))
        return sorted({n_seen, *doubled, len(keys) * self._block_size})

    def _slide(self, tables: BlockTables, window: int, n_past: int) -> None:
        table = tables.tables[window]
        index = oldest_block(window, n_past, self._block_size) - 1
        while index >= 0 and table[index] >= 0:
            self._pools[window].release(int(table[index]))
            table[index] = -1
            tables.changed()
            index -= 1


def n_equal(a: Iterable[int], b: Iterable[int]) -> int:
    """Return the length of the common prefix of two sequences."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))
