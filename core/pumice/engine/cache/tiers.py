"""Blocks and recurrent states that leave the device for host memory and disk, and come back.

What the cache publishes is offered. An offered block goes to disk as soon as the engine has time, behind the
generation, and to host memory when the device needs its place. A block that is nowhere is computed again.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pumice.backend.contract import CacheForm
from pumice.cache_tiers import DiskTier, Entry, RamTier, Tally
from pumice.cache_tiers.identity import identity_of
from pumice.cache_tiers.portable import PortableState
from pumice.config import SETTINGS, Config
from pumice.engine.cache.blocks import BlockPool, BlockTables, Checkpoints, oldest_block
from pumice.engine.placement.runner import Runner
from pumice.errors import BackendError, ConfigError, ModelError, RequestError

STATES = -1
"""Stands for recurrent states where attention windows stand for blocks."""

CLOSING_SECONDS = 5.0
"""For which closing an engine waits until everything is on disk."""

_CHUNK_BYTES = 8 * 2**20  # read from the device at a time
_WAIT_SECONDS = 0.01  # of an engine that has nothing else to do, for the disk

_IRRELEVANT_KEYS = {
    *("cache_ram", "cache_disk", "cache_saved", "cache_disk_limit", "chat_template", "lookahead"),
    *("draft_max", "draft_min", "draft_p_min", "draft_n_ctx", "draft_n_gpu_layers", "n_draft", "speculate"),
    *("prefill_tokens", "max_queue", "memory_limit", "models", "n_batch", "n_parallel", "plugins", "samplers"),
    "sampling",
    *("sandbox", "sandbox_read", "sandbox_write"),
    # known from the placed graphs; these do not say which GPU ``devices``, ``main_gpu`` and ``split_mode`` choose
    *("backend", "backends", "fit", "fit_target", "kv_offload", "n_cpu_ffn", "n_cpu_moe", "n_gpu_layers"),
    *("kv_rotate", "override_tensors", "tensor_split"),
    *("mlock", "mmap", "numa"),
    *("cache_share", "fit_ctx"),
    "kv_type",  # known from the limits
    *("mmproj", "image_min_tokens", "image_max_tokens"),  # known from the rows of images
    "vocoder",
}
"""Keys of the configuration that change no value in the cache, or whose effect is hashed apart from them."""

logger = logging.getLogger("pumice")

_Key = tuple[int, bytes]  # an attention window, or STATES, and the key of a prefix
_Part = tuple[int, bytes, int]  # likewise, and the number of blocks up to its end


@dataclass(frozen=True)
class _Entries:
    """Names the bytes of blocks and states; ``identity`` decides them besides tokens and salts."""

    form: CacheForm
    identity: bytes
    block_size: int

    def n_bytes(self, window: int) -> int:
        """Return the bytes of a block, or of a state; 0 for one that cannot leave the device."""
        return self.form.slot_bytes if window == STATES else self.form.block_bytes.get(window, 0)

    def of(self, window: int, key: bytes, n_blocks: int) -> Entry:
        """Return the entry of what ends after ``n_blocks`` blocks."""
        hashed = hashlib.blake2b(window.to_bytes(8, "little", signed=True) + key, digest_size=32, key=self.identity)
        n_past = n_blocks * self.block_size
        n_tokens = n_past if window == STATES else self.block_size
        return Entry(hashed.digest(), n_past, n_tokens, self.n_bytes(window))


class Tiers:
    """The tiers behind one engine's cache, and the way of blocks and of checkpoints without a tail there and back.

    The engine's thread owns them.

    Args:
        runner: reads and writes the blocks; its caches have a ``form``.
        identity: hash of everything that decides the bytes besides tokens and salts.
        saves_all: the disk gets everything that is offered, not only what ``save`` names.
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
        self._block_size = runner.limits.block_size
        own = hashlib.blake2b(identity + form.computed_by.encode(), digest_size=32).digest()
        self._entries = _Entries(form, own, self._block_size)
        self._ram = ram
        self._disk = disk
        self._saves_all = saves_all
        self._offered: dict[_Key, Entry] = {}  # on the device
        self._unwritten: dict[_Key, None] = {}  # in order

    def stand_behind(self, pools: Mapping[int, BlockPool], checkpoints: Checkpoints | None) -> None:
        """Take what leaves these blocks, by their window, and these checkpoints."""
        self._pools, self._checkpoints = pools, checkpoints
        for window, pool in pools.items():
            pool.on_evict = partial(self._save_evicted, window)
        if checkpoints is not None:
            checkpoints.on_evict = partial(self._save_evicted, STATES)

    # --- from the device

    def offer(self, window: int, key: bytes, n_blocks: int) -> None:
        """Take notice of a block, or state, on the device that other processes would compute equally."""
        if (window, key) in self._offered or not self._entries.n_bytes(window):
            return
        self._offered[window, key] = self._entries.of(window, key, n_blocks)
        if self._disk and self._disk.works and self._saves_all:
            self._unwritten[window, key] = None

    def forget(self) -> None:
        """Forget the offered blocks, which the device has lost."""
        self._offered.clear()
        self._unwritten.clear()

    def _save_evicted(self, window: int, block: int, key: bytes) -> None:
        """Save a block, or slot, before the device uses its place for something else.

        The next blocks in line are saved with it: a device takes as long for one as for several.
        """
        entry = self._offered.get((window, key))
        if entry is None:
            return
        has_copy = self._ram is not None and self._ram.touch(entry)
        if (self._ram and not has_copy) or (window, key) in self._unwritten:
            self._save_blocks(window, [(block, key), *self._next_evicted(window, key)])
        self._offered.pop((window, key), None)
        self._unwritten.pop((window, key), None)

    def _next_evicted(self, window: int, key: bytes) -> list[tuple[int, bytes]]:
        """Return the blocks, and their keys, that follow one in line and are to be saved, some MiB in all."""
        if self._ram is None or window == STATES:
            return []
        most = min(_CHUNK_BYTES, self._ram.tally.limit_bytes // 4) // self._entries.n_bytes(window)
        return [
            (block, other)
            for block, other in self._pools[window].idle(most)
            if other != key and (entry := self._offered.get((window, other))) and not self._ram.has(entry)
        ]

    def _save_blocks(self, window: int, blocks: Sequence[tuple[int, bytes]]) -> None:
        """Copy blocks to host memory, and to disk if they are not there yet."""
        with self._doing_without():
            rows = self._read(window, [block for block, _ in blocks])
            for (_, key), row in zip(blocks, rows, strict=True):
                entry = self._offered[window, key]
                data = row.copy() if len(rows) > 1 else row  # a view would keep all rows
                if self._ram:
                    self._ram.put(entry, data)
                if self._disk and (window, key) in self._unwritten and self._disk.put(entry, data):
                    del self._unwritten[window, key]

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
        most = max(1, _CHUNK_BYTES // self._entries.n_bytes(window) // (1 if idle else 8))
        keys = [key for other, key in self._unwritten if other == window][:most]
        places = {key: place for key in keys if (place := self._place(window, key)) is not None}
        for key in set(keys) - places.keys():
            del self._unwritten[window, key]
        if not places:
            return
        with self._doing_without():
            for key, row in zip(places, self._read(window, list(places.values())), strict=True):
                if not self._disk.put(self._offered[window, key], row):
                    return
                del self._unwritten[window, key]
            return
        self._unwritten.clear()

    def save(self, keys: Sequence[bytes]) -> Generator[None, None, int]:
        """Write the cached blocks of a sequence to disk; return how many of its first tokens are on disk.

        These end with the last full block after which, with recurrent states, a state is held. Yields while it waits.
        Raises ConfigError if some of them could not be written.
        """
        disk = self._disk
        if disk is None:
            return 0
        n_held, parts = self._held(keys)
        for window, key, n_blocks in parts:
            entry = self._entries.of(window, key, n_blocks)
            if not disk.needs(entry):
                continue
            if self._place(window, key) is not None:
                self._offered[window, key] = entry
                self._unwritten[window, key] = None
            elif self._ram and (data := self._ram.get(entry)) is not None:
                while disk.works and not disk.put(entry, data):
                    yield
        while any((window, key) in self._unwritten for window, key, _ in parts):
            self.write_behind(idle=True)
            yield
        flushed = threading.Event()
        disk.flush(flushed)
        while not flushed.wait(0.001):
            yield
        n_written = self._n_whole(keys[:n_held], 0, lambda *part: disk.has(self._entries.of(*part)))
        if n_written < n_held and disk.problem:
            raise ConfigError(disk.problem)
        return n_written * self._block_size

    # --- to the device

    def n_loadable(self, keys: Sequence[bytes], n_past: int) -> int:
        """Return the number of leading blocks that device and tiers hold together, if it exceeds ``n_past`` tokens.

        0 otherwise. With recurrent states, the state after them must be held, too.
        """

        def holds(window: int, key: bytes, n_blocks: int) -> bool:
            if self._place(window, key) is not None:
                return True
            entry = self._entries.of(window, key, n_blocks)
            return bool((self._ram and self._ram.has(entry)) or (self._disk and self._disk.has(entry)))

        return self._n_whole(keys, n_past, holds)

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
            if not self._write(window, [(tables.wanted[index], index + 1) for index in taken], blocks):
                self._drop(window, tables, taken)
                return None
            for index, block in zip(taken, blocks, strict=True):
                pool.publish(block, tables.wanted[index])
        tables.n_blocks = end
        tables.changed()
        tables.keys += tables.wanted[len(tables.keys) : end]
        if end < n_target:
            return 0
        key, tables.wanted = tables.wanted[-1], []
        if self._checkpoints is not None:
            tables.checkpoint = self._place(STATES, key)
            if tables.checkpoint is None and not self._write(STATES, [(key, n_target)], [slot]):
                return None
        return n_target * self._block_size

    def _drop(self, window: int, tables: BlockTables, taken: Sequence[int]) -> None:
        """Give back blocks without contents; ``release`` returns the others."""
        for index in taken:
            self._pools[window].release(int(tables.tables[window][index]))
            tables.tables[window][index] = -1
        tables.n_blocks = len(tables.wanted)  # those taken for other windows are released

    def _write(self, window: int, keys: Sequence[tuple[bytes, int]], places: Sequence[int]) -> bool:
        """Write contents to blocks, or slots, and offer them again; return False if some cannot be had.

        Args:
            window: attention window, or ``STATES``.
            keys: keys, and numbers of blocks up to their end.
            places: a block, or slot, for each.
        """
        entries = {key: self._entries.of(window, key, n_blocks) for key, n_blocks in keys}
        cache = self._runner.cache
        with self._doing_without():
            # Reversed, so that the first counts as used last, without which the rest is useless.
            rows = [row for entry in reversed(entries.values()) if (row := self._row(entry)) is not None]
            if len(rows) < len(entries):
                return False
            if rows and window == STATES:
                cache.call(cache.program.write_slots, places, np.stack(rows))
            elif rows:
                cache.call(cache.program.write_blocks, window, places, np.stack(rows[::-1]))
                self._offered |= {(window, key): entry for key, entry in entries.items()}
            return True
        return False

    # --- prompts as bytes

    def export(self, keys: Sequence[bytes]) -> PortableState:
        """Return what is held of a sequence."""
        n_held, parts = self._held(keys)
        read: list[tuple[Entry, NDArray[np.uint8]]] = []
        for window, key, n_blocks in parts:
            entry, place = self._entries.of(window, key, n_blocks), self._place(window, key)
            row = self._row(entry) if place is None else self._read(window, [place])[0]
            read += [] if row is None else [(entry, row)]
        if len(read) < len(parts):
            n_held, read = 0, []
        entries, rows = [entry for entry, _ in read], [row for _, row in read]
        return PortableState(self._entries.identity, n_held * self._block_size, entries, rows)

    def restore(self, state: PortableState) -> int:
        """Keep what ``export`` returned in host memory, whose limit grows by it, and return the number of its tokens.

        Raises RequestError for the state of another model.
        """
        if state.identity != self._entries.identity:
            raise RequestError("state: it was made with another model, other adapters or other settings")
        self._ram = self._ram or RamTier(0)
        for entry, row in zip(state.entries, state.rows, strict=True):
            if not self._ram.has(entry):
                self._ram.grow(entry)
                self._ram.put(entry, row)
        return state.n_tokens

    # --- for others

    @property
    def tallies(self) -> Mapping[str, Tally]:
        """Contents and counts of each tier since the model was loaded, by the tier's name."""
        tiers = {"ram": self._ram, "disk": self._disk}
        return {name: replace(tier.tally) for name, tier in tiers.items() if tier}

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

    def _place(self, window: int, key: bytes) -> int | None:
        """Return the block, or for ``STATES`` the slot, that holds what ``key`` stands for; None without one."""
        if window != STATES:
            return self._pools[window].find(key)
        checkpoints = self._checkpoints
        return checkpoints.find(key, ()) if checkpoints is not None and checkpoints.holds(key) else None

    def _read(self, window: int, places: Sequence[int]) -> NDArray[np.uint8]:
        """Return the contents of blocks, or slots, on the device."""
        cache = self._runner.cache
        if window == STATES:
            read = cache.call(cache.program.read_slots, places)
        else:
            read = cache.call(cache.program.read_blocks, window, places)
        return read.reshape(len(places), -1)

    def _row(self, entry: Entry) -> NDArray[np.uint8] | None:
        """Return the contents of an entry in a tier; None without it."""
        row = self._ram.get(entry) if self._ram else None
        return self._disk.get(entry) if row is None and self._disk else row

    def _held(self, keys: Sequence[bytes]) -> tuple[int, list[_Part]]:
        """Return the number of leading blocks that are held, and what they consist of."""
        n_held = self.n_loadable(keys, 0)
        parts = [
            (window, keys[index], index + 1)
            for window in self._pools
            for index in range(oldest_block(window, n_held * self._block_size, self._block_size), n_held)
        ]
        if n_held and self._checkpoints is not None:
            parts.append((STATES, keys[n_held - 1], n_held))
        return n_held, parts

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


def make_tiers(
    config: Config, runner: Runner, files: Sequence[str], plugins: Sequence[tuple[str, str | None]]
) -> Tiers | None:
    """Return the tiers behind the cache of a compiled model, of which none may be configured.

    Args:
        config: the configured tiers, and what else decides the bytes.
        runner: the model.
        files: the model's files, and those of adapters and drafts.
        plugins: names and versions of those in use.

    Returns:
        None if the cache cannot leave the device.

    Raises:
        ConfigError: the folder cannot be used.
        ModelError: a file cannot be read.
    """
    form, limits = runner.cache.program.cache_form, runner.limits
    loses_states = runner.model.recurrent and not runner.keeps_states
    has_cache = bool(limits.n_blocks) or runner.keeps_states
    if form is None or loses_states or runner.model.encodes or not has_cache:
        for option in ("cache_ram", "cache_disk", "cache_saved"):
            if getattr(config, option):
                logger.warning(
                    "%s: not used: on %s, this model's cache cannot leave the device",
                    option,
                    ", ".join(runner.placed.backends_used),
                )
        return None
    settings = {name: getattr(config, name) for name in SETTINGS if name not in _IRRELEVANT_KEYS}
    facts = (limits.block_size, limits.kv_type, settings, list(plugins), runner.placed.describe())
    try:
        identity = identity_of(files, *facts)
    except OSError as error:
        raise ModelError(f"{error.filename}: cannot be read: {error.strerror}") from None
    ram = RamTier(config.cache_ram * 2**20) if config.cache_ram else None
    folder, limit = config.cache_folder, int(config.cache_disk_limit * 2**30)
    disk = DiskTier(Path(folder), limit, config.cache_option) if folder else None
    return Tiers(runner, form, identity, ram, disk, saves_all=bool(config.cache_disk))
