"""Blocks and recurrent states that leave the device for host memory and disk, and come back.

What the cache publishes is offered. An offered block goes to disk as soon as the engine has time, behind the
generation, and to host memory when the device needs its place. A block that is nowhere is computed again.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray

from pumice.backend.contract import CacheForm
from pumice.cache_tiers import DiskTier, Entry, RamTier, Tally
from pumice.engine.cache.blocks import BlockPool, BlockTables, oldest_block
from pumice.engine.cache.checkpoints import Checkpoints
from pumice.engine.cache.portable import PortableState
from pumice.engine.placement.runner import Runner
from pumice.errors import BackendError, RequestError

STATES = -1
"""Stands for recurrent states where attention windows stand for blocks."""

CLOSING_SECONDS = 5.0
"""For which closing an engine waits until everything is on disk."""

_CHUNK_BYTES = 8 * 2**20  # read from the device at a time
_WAIT_SECONDS = 0.01  # of an engine that has nothing else to do, for the disk

_Key = tuple[int, bytes]  # an attention window, or STATES, and the key of a prefix


class Tiers:
    """The tiers behind one engine's cache; its thread owns them.

    Args:
        runner: reads and writes the blocks; its caches have a ``form``.
        identity: hash of everything that decides the bytes besides tokens and salts.
        saves_all: the disk gets everything that is offered, not only what ``save`` names.

    Attributes:
        identity: hash of everything that decides the bytes of entries besides tokens and salts.
    """

    def __init__(
        self,
        runner: Runner,
        form: CacheForm,
        identity: bytes,
        ram: RamTier | None,
        disk: DiskTier | None,
        saves_all: bool = True,
    ) -> None:
        self._pools: Mapping[int, BlockPool] = {}
        self._checkpoints: Checkpoints | None = None
        self._runner = runner
        self._form = form
        self.identity = hashlib.blake2b(identity + form.computed_by.encode(), digest_size=32).digest()
        self._ram = ram
        self._disk = disk
        self._saves_all = saves_all
        self._block_size = runner.limits.block_size
        self._offered: dict[_Key, int] = {}  # number of blocks up to the end of what is on the device
        self._unwritten: OrderedDict[_Key, None] = OrderedDict()

    def stand_behind(self, pools: Mapping[int, BlockPool], checkpoints: Checkpoints | None) -> None:
        """Take what leaves these blocks, by their window, and these checkpoints."""
        self._pools, self._checkpoints = pools, checkpoints
        for window, pool in pools.items():
            pool.on_evict = partial(self.save_evicted, window)
        if checkpoints is not None:
            checkpoints.on_evict = partial(self.save_evicted, STATES)

    def place_of(self, window: int, key: bytes) -> int | None:
        """Return the block, or for ``STATES`` the slot, that holds what ``key`` stands for; None without one."""
        if window != STATES:
            return self._pools[window].find(key)
        checkpoints = self._checkpoints
        return checkpoints.find(key, ()) if checkpoints is not None and checkpoints.holds(key) else None

    # --- from the device

    def offer(self, window: int, key: bytes, n_blocks: int) -> None:
        """Take notice of a block, or state, on the device that other processes would compute equally."""
        if (window, key) in self._offered or not self._n_bytes(window):
            return
        self._offered[window, key] = n_blocks
        if self._disk and self._disk.works and self._saves_all:
            self._unwritten[window, key] = None

    def save(self, window: int, key: bytes, n_blocks: int) -> bool:
        """Have something written to disk, if it is on the device or in host memory; False: try again later."""
        entry = self._entry(window, key, n_blocks)
        if not self._disk or not self._disk.works or not self._disk.needs(entry):
            return True
        if self.place_of(window, key) is not None:
            self._offered[window, key] = n_blocks
            self._unwritten[window, key] = None
            return True
        data = self._ram.get(entry) if self._ram else None
        return data is None or self._disk.put(entry, data)

    def has_unwritten(self, parts: Iterable[tuple[int, bytes, int]]) -> bool:
        """Return True if some of what ``save`` was called for is not queued for the disk yet."""
        return any((window, key) in self._unwritten for window, key, _ in parts)

    def flush(self) -> threading.Event:
        """Return an event that is set once all blocks queued by now are written."""
        flushed = threading.Event()
        if self._disk:
            self._disk.flush(flushed)
        else:
            flushed.set()
        return flushed

    def on_disk(self, window: int, key: bytes, n_blocks: int) -> bool:
        """Return True if the disk holds what ends after ``n_blocks`` blocks."""
        return self._disk is not None and self._disk.has(self._entry(window, key, n_blocks))

    def save_evicted(self, window: int, block: int, key: bytes) -> None:
        """Save a block, or slot, before the device uses its place for something else.

        The next blocks in line are saved with it: a device takes as long for one as for several.
        """
        n_blocks = self._offered.get((window, key))
        if n_blocks is None:
            return
        entry = self._entry(window, key, n_blocks)
        is_unwritten = (window, key) in self._unwritten
        has_copy = self._ram is not None and self._ram.touch(entry)
        if (self._ram and not has_copy) or is_unwritten:
            self._save(window, [(block, key), *self._next_evicted(window, key)])
        self._offered.pop((window, key), None)
        self._unwritten.pop((window, key), None)

    def _next_evicted(self, window: int, key: bytes) -> list[tuple[int, bytes]]:
        """Return the blocks, and their keys, that follow one in line and are to be saved, some MiB in all."""
        if self._ram is None or window == STATES:
            return []
        most = min(_CHUNK_BYTES, self._ram.tally.limit_bytes // 4) // self._n_bytes(window)
        return [
            (block, other)
            for block, other in self._pools[window].idle(most)
            if other != key
            and (n_blocks := self._offered.get((window, other))) is not None
            and not self._ram.has(self._entry(window, other, n_blocks))
        ]

    def _save(self, window: int, blocks: Sequence[tuple[int, bytes]]) -> None:
        """Copy blocks to host memory, and to disk if they are not there yet."""
        with self._doing_without():
            rows = self._read(window, [block for block, _ in blocks])
            for (_, key), row in zip(blocks, rows, strict=True):
                entry = self._entry(window, key, self._offered[window, key])
                data = row.copy() if len(rows) > 1 else row  # a view would keep all rows
                if self._ram:
                    self._ram.put(entry, data)
                if self._disk and (window, key) in self._unwritten and self._disk.put(entry, data):
                    del self._unwritten[window, key]

    def forget(self) -> None:
        """Forget the offered blocks, which the device has lost."""
        self._offered.clear()
        self._unwritten.clear()

    @property
    def busy(self) -> bool:
        """True if something is to be written to disk."""
        return bool(self._unwritten)

    def write_behind(self, idle: bool) -> None:
        """Queue some of the offered blocks for the disk; ``idle``: nothing else waits."""
        if not self._disk or not self._unwritten:
            return
        if not self._disk.works:
            self._unwritten.clear()
            return
        if not self._disk.wait(_WAIT_SECONDS if idle else 0):
            return
        window, _ = next(iter(self._unwritten))
        most = max(1, _CHUNK_BYTES // self._n_bytes(window) // (1 if idle else 8))
        keys = [key for other, key in self._unwritten if other == window][:most]
        places = {key: place for key in keys if (place := self.place_of(window, key)) is not None}
        entries = [self._entry(window, key, self._offered[window, key]) for key in places]
        for key in set(keys) - places.keys():
            del self._unwritten[window, key]
        if not places:
            return
        with self._doing_without():
            for key, entry, row in zip(places, entries, self._read(window, list(places.values())), strict=True):
                if not self._disk.put(entry, row):
                    return
                del self._unwritten[window, key]
            return
        self._unwritten.clear()

    # --- to the device

    def has(self, window: int, key: bytes, n_blocks: int) -> bool:
        """Return True if a tier holds what ends after ``n_blocks`` blocks."""
        entry = self._entry(window, key, n_blocks)
        return bool((self._ram and self._ram.has(entry)) or (self._disk and self._disk.has(entry)))

    def load(self, window: int, keys: Sequence[tuple[bytes, int]], places: Sequence[int]) -> bool:
        """Write contents to blocks, or slots, and offer them again; return False if some cannot be had.

        Args:
            window: attention window, or ``STATES``.
            keys: keys, and numbers of blocks up to their end.
            places: a block, or slot, for each.
        """
        with self._doing_without():
            rows = self._rows(window, keys)
            if rows is None:
                return False
            if rows and window == STATES:
                self._runner.cache.write_slots(places, np.stack(rows))
            elif rows:
                self._runner.cache.write_blocks(window, places, np.stack(rows))
                for key, n_blocks in keys:
                    self._offered[window, key] = n_blocks
            return True
        return False

    def read(self, window: int, key: bytes, n_blocks: int) -> tuple[Entry, NDArray[np.uint8]] | None:
        """Return the contents of a block, or state, wherever they are, and their entry; None if they are gone."""
        place = self.place_of(window, key)
        if place is not None:
            return self._entry(window, key, n_blocks), self._read(window, [place])[0]
        rows = self._rows(window, [(key, n_blocks)])
        return (self._entry(window, key, n_blocks), rows[0]) if rows else None

    def hold(self, entries: Sequence[Entry], rows: Sequence[NDArray[np.uint8]]) -> None:
        """Keep contents in host memory, whose limit grows by theirs."""
        self._ram = self._ram or RamTier(0)
        for entry, row in zip(entries, rows, strict=True):
            if not self._ram.has(entry):
                self._ram.grow(entry)
                self._ram.put(entry, row)

    def _rows(self, window: int, keys: Sequence[tuple[bytes, int]]) -> list[NDArray[np.uint8]] | None:
        """Return the contents of keys; None if some are gone."""
        rows = []
        for key, n_blocks in reversed(keys):  # so that the first counts as used last, without which the rest is useless
            entry = self._entry(window, key, n_blocks)
            row = self._ram.get(entry) if self._ram else None
            if row is None and self._disk:
                row = self._disk.get(entry)
            if row is None:
                return None
            rows.append(row)
        return rows[::-1]

    # --- for others

    @property
    def tallies(self) -> Mapping[str, Tally]:
        """Contents and counts of each tier since the model was loaded, by the tier's name."""
        tiers = {"ram": self._ram, "disk": self._disk}
        return {name: replace(tier.tally) for name, tier in tiers.items() if tier}

    def written(self, seconds: float) -> bool:
        """Wait until all that was queued is on disk; return False if it takes longer."""
        return self._disk is None or self._disk.wait(seconds, empty=True)

    def close(self) -> None:
        """Write the remaining blocks to disk, as far as time allows."""
        if self._disk:
            ends = time.monotonic() + CLOSING_SECONDS
            while self._unwritten and time.monotonic() < ends:
                self.write_behind(idle=True)
            self._disk.close(max(0.1, ends - time.monotonic()))

    @contextmanager
    def _doing_without(self) -> Iterator[None]:
        """Pass over a lack of memory, and an error of the device that leaves it in use; both shrink host memory."""
        try:
            yield
        except (MemoryError, BackendError):
            if self._runner.lost:
                raise
            if self._ram:
                self._ram.shrink()

    def _read(self, window: int, places: Sequence[int]) -> NDArray[np.uint8]:
        cache = self._runner.cache
        read = cache.read_slots(places) if window == STATES else cache.read_blocks(window, places)
        return read.reshape(len(places), -1)

    def _n_bytes(self, window: int) -> int:
        return self._form.slot_bytes if window == STATES else self._form.block_bytes.get(window, 0)

    def _entry(self, window: int, key: bytes, n_blocks: int) -> Entry:
        hashed = hashlib.blake2b(window.to_bytes(8, "little", signed=True) + key, digest_size=32, key=self.identity)
        n_past = n_blocks * self._block_size
        n_tokens = n_past if window == STATES else self._block_size
        return Entry(hashed.digest(), n_past, n_tokens, self._n_bytes(window))


class Spilled:
    """Moves what leaves a cache, blocks by their window and checkpoints without a tail, to tiers, and back."""

    def __init__(
        self, tiers: Tiers, pools: Mapping[int, BlockPool], checkpoints: Checkpoints | None, block_size: int
    ) -> None:
        self._tiers = tiers
        self._pools = pools
        self._checkpoints = checkpoints
        self._block_size = block_size
        tiers.stand_behind(pools, checkpoints)

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
