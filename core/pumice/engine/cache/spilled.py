"""Blocks and recurrent states that left the device for tiers, and come back."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from itertools import takewhile

from pumice.engine.cache.blocks import BlockPool
from pumice.engine.cache.checkpoints import Checkpoints
from pumice.engine.cache.portable import PortableState
from pumice.engine.cache.tables import BlockTables, oldest_block
from pumice.engine.cache.tiers import STATES, Tiers
from pumice.errors import RequestError


class Spilled:
    """Moves what leaves a cache, blocks by their window and checkpoints without a tail, to tiers, and back."""

    def __init__(
        self, tiers: Tiers, pools: Mapping[int, BlockPool], checkpoints: Checkpoints | None, block_size: int
    ) -> None:
        self._tiers = tiers
        self._pools = pools
        self._checkpoints = checkpoints
        self._block_size = block_size
        tiers.place_of = self.place_of
        tiers.idle = lambda window, most: pools[window].idle(most)
        for window, pool in pools.items():
            pool.on_evict = partial(tiers.save_evicted, window)
        if checkpoints is not None:
            checkpoints.on_evict = partial(tiers.save_evicted, STATES)

    def place_of(self, window: int, key: bytes) -> int | None:
        """Return the block, or for ``STATES`` the slot, that holds what ``key`` stands for; None without one."""
        if window != STATES:
            return self._pools[window].find(key)
        checkpoints = self._checkpoints
        return checkpoints.find(key, ()) if checkpoints is not None and checkpoints.holds(key) else None

    def n_loadable(self, keys: Sequence[bytes], n_past: int) -> int:
        """Return the number of leading blocks that device and tiers hold together, if it exceeds ``n_past`` tokens.

        0 otherwise. With recurrent states, the state after them must be held, too.
        """
        tiers, checkpoints = self._tiers, self._checkpoints

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
            has_state = self._checkpoints is None or holds(STATES, keys[n - 1], n)
            if has_state and all(
                all(blocks[oldest_block(window, n * self._block_size, self._block_size) : n])
                for window, blocks in held.items()
                if window
            ):
                return n
        return 0

    def save(self, keys: Sequence[bytes]) -> Generator[None, None, int]:
        """Write the cached blocks of a sequence to disk; return how many of its first tokens are on disk.

        These end with the last full block after which, with recurrent states, a state is held. Yields while it waits.
        """
        tiers = self._tiers
        n_held, parts = self._held(keys)
        for part in parts:
            while not tiers.save(*part):
                yield
        while tiers.has_unwritten(parts):
            tiers.write_behind(idle=True)
            yield
        flushed = tiers.flush()
        while not flushed.wait(0.001):
            yield
        return self._n_whole(keys[:n_held], 0, tiers.on_disk) * self._block_size

    def _held(self, keys: Sequence[bytes]) -> tuple[int, list[tuple[int, bytes, int]]]:
        """Return the number of leading blocks that are held, and what they consist of: window, key, end."""
        n_held = self.n_loadable(keys, 0)
        parts = [
            (window, keys[index], index + 1)
            for window in self._pools
            for index in range(oldest_block(window, n_held * self._block_size, self._block_size), n_held)
        ]
        if n_held and self._checkpoints is not None:
            parts.append((STATES, keys[n_held - 1], n_held))
        return n_held, parts

    def export(self, keys: Sequence[bytes]) -> PortableState:
        """Return what is held of a sequence."""
        n_held, parts = self._held(keys)
        read = [item for part in parts if (item := self._tiers.read(*part)) is not None]
        if len(read) < len(parts):
            n_held, read = 0, []
        entries, rows = [entry for entry, _ in read], [row for _, row in read]
        return PortableState(self._tiers.identity, n_held * self._block_size, entries, rows)

    def restore(self, state: PortableState) -> int:
        """Hold what ``export`` returned, and return the number of its tokens. Raises RequestError for another model."""
        if state.identity != self._tiers.identity:
            raise RequestError("state: it was made with another model, other adapters or other settings")
        self._tiers.hold(state.entries, state.rows)
        return state.n_tokens

    def load(self, tables: BlockTables, slot: int, most: int) -> int | None:
        """Load at most ``most`` of the blocks that tables want, and at last the state, into ``slot``.

        Returns:
            The number of tokens held, or 0 if more remains to be loaded. None if something cannot be loaded: the
            sequence begins again.
        """
        begin, n_target = tables.n_blocks, len(tables.wanted)
        end = min(begin + most, n_target)
        for window, pool in self._pools.items():
            oldest = oldest_block(window, n_target * self._block_size, self._block_size)
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
        tables.n_blocks = end
        tables.changed()
        tables.keys += tables.wanted[len(tables.keys) : end]
        if end < n_target:
            return 0
        return self._load_state(tables, slot)

    def _load_state(self, tables: BlockTables, slot: int) -> int | None:
        key, n_target = tables.wanted[-1], len(tables.wanted)
        tables.wanted = []
        if self._checkpoints is not None:
            if self._checkpoints.holds(key):
                tables.checkpoint = self._checkpoints.find(key, ())
            elif not self._tiers.load(STATES, [(key, n_target)], [slot]):
                return None
        return n_target * self._block_size

    def _drop(self, window: int, tables: BlockTables, taken: Sequence[int]) -> None:
        """Give back blocks without contents; ``release`` returns the others."""
        for index in taken:
            self._pools[window].release(int(tables.tables[window][index]))
            tables.tables[window][index] = -1
        tables.n_blocks = len(tables.wanted)  # those taken for other windows are released
