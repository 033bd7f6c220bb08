"""The paged KV cache as the engine sees it: block tables (Kwon et al. 2023, arXiv:2309.06180).

The bytes belong to the backends.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import partial
from itertools import count, takewhile

import numpy as np
from numpy.typing import NDArray

from pumice.backend.step import Limits
from pumice.engine.cache.blocks import BlockPool
from pumice.engine.cache.checkpoints import Checkpoints
from pumice.engine.cache.tiers import STATES, Tiers

FIRST_MARK = 512
"""Tokens of a prompt after which its state is first kept, then after twice, four times, ... as many."""

_versions = count()


class BlockTables:
    """A sequence's blocks: an int32 table per attention window, with -1 for blocks that are not held."""

    def __init__(self, windows: Sequence[int], n_max: int, salt: bytes = b"") -> None:
        self.tables: dict[int, NDArray[np.int32]] = {w: np.full(n_max, -1, np.int32) for w in windows}
        self.n_blocks = 0  # entries in use, including -1 for blocks outside of a window
        self.version = next(_versions)  # another one after each change of entries, and for each sequence
        self.keys: list[bytes] = []  # of the full blocks
        self.salt = salt
        self.checkpoint: int | None = None  # slot of the recurrent state from which the sequence continues
        self.marks: list[int] = []  # numbers of tokens after which its state is kept, ascending
        self.wanted: list[bytes] = []  # keys of blocks to load from a tier; those before are held already
        self.portable = True  # no block depends on media, whose ids are known to this process only

    def after(self, n: int) -> BlockTables:
        """Return a copy of the tables without the first ``n`` blocks, for a step in which the sequence begins there."""
        rest = BlockTables((), 0)
        rest.tables = {w: np.append(table[n:], np.full(n, -1, np.int32)) for w, table in self.tables.items()}
        rest.n_blocks = self.n_blocks - n
        return rest


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
        self._tiers: Tiers | None = None

    def spill_to(self, tiers: Tiers) -> None:
        """Let blocks and checkpoints without a tail move to tiers from now on."""
        self._tiers = tiers
        tiers.place_of = self.block
        tiers.idle = lambda window, most: self._pools[window].idle(most)
        for window, pool in self._pools.items():
            pool.on_evict = partial(tiers.save_evicted, window)
        if self.checkpoints is not None:
            self.checkpoints.on_evict = partial(tiers.save_evicted, STATES)

    def begin(self, tokens: Sequence[int], salt: bytes = b"", loads: bool = True) -> tuple[BlockTables, int]:
        """Return tables for a new sequence, and the number of its first tokens that they already hold.

        If more can be loaded from tiers, the tables want it, and the number is 0 until ``load`` has ended. ``loads``:
        whether to look there.
        """
        tables = BlockTables(list(self._pools), self._n_max, salt)
        n_shared, tail = 0, tokens[:0]
        if self.shares_prefixes:
            n_shared, tail = self._shared(tokens, tables)
            if self._tiers:
                n_text = next((i for i, token in enumerate(tokens) if token < 0), len(tokens))
                tables.portable = n_shared * self._block_size <= n_text
                n_past = n_shared * self._block_size + (len(tail) if self.checkpoints else 0)
                if loads and (n_target := self._loadable(tables.keys[: n_text // self._block_size], n_past)):
                    tables.wanted, tables.checkpoint, tail = tables.keys[:n_target], None, tokens[:0]
                    n_shared = min(n_shared, n_target)
        n_coming = len(tables.wanted) or n_shared
        for window, pool in self._pools.items():
            for index in range(self._oldest_block(window, n_coming * self._block_size), n_shared):
                tables.tables[window][index] = pool.share(tables.keys[index])
        del tables.keys[n_shared:]
        tables.n_blocks = n_shared
        if tables.wanted:
            tables.marks = [mark for mark in tables.marks if mark > len(tables.wanted) * self._block_size]
            return tables, 0
        n_past = n_shared * self._block_size + (self._take_over(tables, tail) if self._pools else len(tail))
        tables.marks = [mark for mark in tables.marks if mark > n_past]
        return tables, n_past

    def _loadable(self, keys: Sequence[bytes], n_past: int) -> int:
        """Return the number of leading blocks that device and tiers hold together, if it exceeds ``n_past`` tokens.

        0 otherwise. With recurrent states, the state after them must be held, too.
        """
        assert self._tiers is not None
        tiers, checkpoints = self._tiers, self.checkpoints

        def holds(window: int, key: bytes, n_blocks: int) -> bool:
            if window == STATES:
                return (checkpoints is not None and checkpoints.holds(key)) or tiers.has(window, key, n_blocks)
            return self._pools[window].knows(key) or tiers.has(window, key, n_blocks)

        return self._n_whole(keys, n_past, holds)

    def _n_whole(self, keys: Sequence[bytes], n_past: int, holds: Callable[[int, bytes, int], bool]) -> int:
        """Return the most leading blocks that are held with the state after them; 0 unless beyond ``n_past`` tokens.

        ``holds``: whether what ends after a number of blocks is held, by its window, or ``STATES``, and its key.
        """
        held: dict[int, list[bool]] = {}
        for window in self._pools:
            is_held = (holds(window, key, i + 1) for i, key in enumerate(keys))
            held[window] = list(is_held) if window else list(takewhile(bool, is_held))
        for n in range(min([len(keys), *map(len, held.values())]), n_past // self._block_size, -1):
            has_state = self.checkpoints is None or holds(STATES, keys[n - 1], n)
            if has_state and all(
                all(blocks[self._oldest_block(window, n * self._block_size) : n])
                for window, blocks in held.items()
                if window
            ):
                return n
        return 0

    def save(self, tokens: Sequence[int], salt: bytes) -> Generator[None, None, int]:
        """Write the cached blocks of a sequence to disk; return how many of its first tokens are on disk.

        These end with the last full block after which, with recurrent states, a state is held. Yields while it waits.
        """
        tiers = self._tiers
        if not self.shares_prefixes or tiers is None or not tokens:
            return 0
        tables = BlockTables(list(self._pools), self._n_max, salt)
        for index in range((len(tokens) - 1) // self._block_size):
            tables.keys.append(self._block_key(tables, tokens, index))
        n_held = self._loadable(tables.keys, 0)
        parts = [
            (window, tables.keys[index], index + 1)
            for window in self._pools
            for index in range(self._oldest_block(window, n_held * self._block_size), n_held)
        ]
        if n_held and self.checkpoints is not None:
            parts.append((STATES, tables.keys[n_held - 1], n_held))
        for part in parts:
            while not tiers.save(*part):
                yield
        while tiers.has_unwritten(parts):
            tiers.write_behind(idle=True)
            yield
        flushed = tiers.flush()
        while not flushed.wait(0.001):
            yield
        return self._n_whole(tables.keys[:n_held], 0, tiers.on_disk) * self._block_size

    def load(self, tables: BlockTables, slot: int, most: int) -> int | None:
        """Load at most ``most`` of the blocks that tables want, and at last the state, into ``slot``.

        Returns:
            The number of tokens held, or 0 if more remains to be loaded. None if something cannot be loaded: the
            sequence begins again.
        """
        assert self._tiers is not None
        begin, n_target = tables.n_blocks, len(tables.wanted)
        end = min(begin + most, n_target)
        for window, pool in self._pools.items():
            oldest = self._oldest_block(window, n_target * self._block_size)
            taken: list[int] = []
            for index in range(max(begin, oldest), end):
                key = tables.wanted[index]
                if pool.knows(key):
                    tables.tables[window][index] = pool.share(key)
                elif pool.available:
                    tables.tables[window][index] = pool.take()
                    taken.append(index)
                else:
                    self._drop(window, tables, taken)
                    return None
            blocks = tables.tables[window][taken].tolist()
            if not self._tiers.load(window, [(tables.wanted[index], index + 1) for index in taken], blocks):
                self._drop(window, tables, taken)
                return None
            for index, block in zip(taken, blocks, strict=True):
                pool.publish(block, tables.wanted[index])
        tables.n_blocks, tables.version = end, next(_versions)
        tables.keys += tables.wanted[len(tables.keys) : end]
        if end < n_target:
            return 0
        return self._load_state(tables, slot)

    def _load_state(self, tables: BlockTables, slot: int) -> int | None:
        assert self._tiers is not None
        key, n_target = tables.wanted[-1], len(tables.wanted)
        tables.wanted = []
        if self.checkpoints is not None:
            if self.checkpoints.holds(key):
                tables.checkpoint = self.checkpoints.find(key, ())
            elif not self._tiers.load(STATES, [(key, n_target)], [slot]):
                return None
        return n_target * self._block_size

    def _drop(self, window: int, tables: BlockTables, taken: Sequence[int]) -> None:
        """Give back blocks without contents; ``release`` returns the others."""
        for index in taken:
            self._pools[window].release(int(tables.tables[window][index]))
            tables.tables[window][index] = -1
        tables.n_blocks = len(tables.wanted)  # those taken for other windows are released

    def block(self, window: int, key: bytes) -> int | None:
        """Return the block, or for ``STATES`` the slot, that holds what ``key`` stands for; None without one."""
        if window == STATES:
            holds = self.checkpoints is not None and self.checkpoints.holds(key)
            return self.checkpoints.find(key, ()) if self.checkpoints is not None and holds else None
        return self._pools[window].find(key)

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
        tables.version = next(_versions)
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

    def fits(self, sequences: Iterable[tuple[BlockTables, int]]) -> bool:
        """Return True if there are blocks for all of these sequences to hold the given numbers of positions."""
        demands = [(tables, -(-n // self._block_size)) for tables, n in sequences]
        return all(
            sum(self._will_take(tables, window, n_blocks) for tables, n_blocks in demands) <= pool.available
            for window, pool in self._pools.items()
        )

    def _will_take(self, tables: BlockTables, window: int, n_blocks: int) -> int:
        """Return the blocks that a sequence takes until ``n_blocks`` are filled, minus those that leave its window."""
        missing = max(0, n_blocks - tables.n_blocks)
        if not window:
            return missing
        reach = -(-(window + self.n_batch) // self._block_size) + 1
        held = int(np.count_nonzero(tables.tables[window][: tables.n_blocks] >= 0))
        return min(missing, max(0, reach - held))

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
            tables.keys.append(self._block_key(tables, tokens, index))
            if self.checkpoints is not None:
                self.checkpoints.see(tables.keys[index])
            first = index * self._block_size
            tables.portable = tables.portable and min(tokens[first : first + self._block_size]) >= 0
            for window, pool in self._pools.items():
                if tables.tables[window][index] >= 0:
                    pool.publish(int(tables.tables[window][index]), tables.keys[index])
                    if self._tiers and tables.portable:
                        self._tiers.offer(window, tables.keys[index], index + 1)

    def keep(self, tables: BlockTables, tokens: Sequence[int], n_past: int) -> int | None:
        """Return the slot for a copy of the recurrent state after ``n_past`` tokens; None if it is not kept."""
        if self.checkpoints is None or not n_past:
            return None
        n_full = n_past // self._block_size
        first, parent = n_full * self._block_size, self._parent(tables, n_full)
        if n_past > first and n_full < len(tables.keys):  # a block that has become full is taken over, too
            self._know_tail(parent, list(tokens[first : first + self._block_size]))
        slot = self.checkpoints.keep(parent, tokens[first:n_past])
        if self._tiers and slot is not None and n_past == first and tables.portable:
            self._tiers.offer(STATES, parent, n_full)
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
        if self._tiers:
            self._tiers.forget()
        if self.checkpoints is not None:
            self.checkpoints.forget()
        for pool in self._pools.values():
            pool.forget()

    def _publish_tail(self, tables: BlockTables, tokens: Sequence[int]) -> None:
        n_full = len(tables.keys)
        tail = list(tokens[n_full * self._block_size :])
        if not 0 < len(tail) < self._block_size:  # a longer tail has full blocks that were not published
            return
        parent = self._parent(tables, n_full)
        for window, pool in self._pools.items():
            pool.publish(int(tables.tables[window][n_full]), self._key(parent, tail))
        self._know_tail(parent, tail)

    def _know_tail(self, parent: bytes, tail: list[int]) -> None:
        tails = [other for other in self._known_tails(parent) if other != tail]
        self._tails[parent] = [*tails, tail]
        if len(self._tails) > self._most_tails:
            self._tails = {parent: tails for parent in self._tails if (tails := self._known_tails(parent))}
            self._most_tails = 2 * len(self._tails) + 64

    def _take_over(self, tables: BlockTables, tokens: Sequence[int]) -> int:
        """Continue in the last block that shares most of ``tokens``; return the number of shared tokens."""
        parent = self._parent(tables, tables.n_blocks)
        tails = self._known_tails(parent)
        n_equal, tail = max(((_n_equal(tail, tokens), tail) for tail in tails), default=(0, []))
        if n_equal:
            tails.remove(tail)
            for window, pool in self._pools.items():
                tables.tables[window][tables.n_blocks] = pool.claim(self._key(parent, tail))
            tables.n_blocks += 1
            self._tails[parent] = tails
        return n_equal

    def _known_tails(self, parent: bytes) -> list[list[int]]:
        """Return the known tails, without those whose blocks were reused."""
        tails = [(tail, self._key(parent, tail)) for tail in self._tails.get(parent, [])]
        return [tail for tail, key in tails if all(pool.is_idle(key) for pool in self._pools.values())]

    def batch_tables(self, sequences: Sequence[BlockTables]) -> dict[int, NDArray[np.int32]]:
        """Return the tables of several sequences for a batch, one per row."""
        width = max(tables.n_blocks for tables in sequences)
        return {w: np.array([tables.tables[w][:width] for tables in sequences]) for w in self._pools}

    def _shared(self, tokens: Sequence[int], tables: BlockTables) -> tuple[int, Sequence[int]]:
        """Return the number of shareable leading blocks, and the tokens to look for in a last block after them.

        At least one token remains to be computed. Sets the keys of all full blocks before it.
        """
        for index in range((len(tokens) - 1) // self._block_size):
            tables.keys.append(self._block_key(tables, tokens, index))
        tables.marks = self._marks(tables.keys, len(tokens)) if self.checkpoints is not None else []
        for n_shared in range(len(tables.keys), -1, -1):
            if all(self._holds(window, tables.keys, n_shared) for window in self._pools):
                rest = tokens[n_shared * self._block_size : -1]
                if self.checkpoints is None:
                    return n_shared, rest
                tail = self._kept(self._parent(tables, n_shared), rest)
                if tail is not None:
                    tables.checkpoint = self.checkpoints.find(self._parent(tables, n_shared), tail)
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

    def _holds(self, window: int, keys: Sequence[bytes], n_shared: int) -> bool:
        oldest = self._oldest_block(window, n_shared * self._block_size)
        return all(self._pools[window].knows(key) for key in keys[oldest:n_shared])

    def _slide(self, tables: BlockTables, window: int, n_past: int) -> None:
        table = tables.tables[window]
        index = self._oldest_block(window, n_past) - 1
        while index >= 0 and table[index] >= 0:
            self._pools[window].release(int(table[index]))
            table[index] = -1
            tables.version = next(_versions)
            index -= 1

    def _oldest_block(self, window: int, n_past: int) -> int:
        """Return the first block that a query at position ``n_past`` or later can attend to."""
        return max(0, n_past - window + 1) // self._block_size if window else 0

    def _block_key(self, tables: BlockTables, tokens: Sequence[int], index: int) -> bytes:
        first = index * self._block_size
        return self._key(self._parent(tables, index), tokens[first : first + self._block_size])

    def _parent(self, tables: BlockTables, index: int) -> bytes:
        """Return the key that precedes block ``index``."""
        if index:
            return tables.keys[index - 1]
        # Hashed, as long as any key: else a salt that ends with tokens would give the key of other tokens.
        return hashlib.blake2b(tables.salt, digest_size=32, person=b"salt").digest()

    def _key(self, parent: bytes, tokens: Sequence[int]) -> bytes:
        """Return a block's key, which continues the previous key, since its contents depend on all earlier tokens."""
        return hashlib.blake2b(parent + np.asarray(tokens, np.int32).tobytes(), digest_size=32).digest()


def _n_equal(a: Sequence[int], b: Sequence[int]) -> int:
    """Return the length of the common prefix of two sequences."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))
