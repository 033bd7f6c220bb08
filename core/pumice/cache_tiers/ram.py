"""The tier in host memory: entries that left the device, within a limit of bytes."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from pumice.cache_tiers.entry import Entry, Tally, eviction_order

Bytes = NDArray[np.uint8]

_OVERHEAD = 512  # bytes of host memory per entry besides its own
_KEPT = 0.95  # share of the limit that an eviction leaves, so that not every new entry sorts all


class RamTier:
    """Entries by their key, at most ``limit`` bytes. It belongs to the engine's thread."""

    def __init__(self, limit: int) -> None:
        self.tally = Tally(limit_bytes=limit)
        self._held: dict[bytes, tuple[Entry, Bytes, float]] = {}

    def has(self, entry: Entry) -> bool:
        return entry.key in self._held

    def touch(self, entry: Entry) -> bool:
        """Count an entry as used; return False without it."""
        held = self._held.get(entry.key)
        if held is None:
            return False
        self._held[entry.key] = held[0], held[1], time.monotonic()
        return True

    def get(self, entry: Entry) -> Bytes | None:
        """Return the bytes of an entry, which counts as used; None without it."""
        held = self._held.get(entry.key)
        if held is None or len(held[1]) != entry.n_bytes:
            return None
        held_entry, data, _ = held
        self._held[entry.key] = held_entry, data, time.monotonic()
        self.tally.n_loaded += 1
        return data

    def put(self, entry: Entry, data: Bytes) -> None:
        """Store an entry, for which others may be evicted; ``data [n_bytes]`` is not copied."""
        size = entry.n_bytes + _OVERHEAD
        if entry.key in self._held or size > self.tally.limit_bytes:
            return
        if self.tally.n_bytes + size > self.tally.limit_bytes:
            self._make_room(size)
        self._held[entry.key] = entry, data, time.monotonic()
        self.tally.n_bytes += size
        self.tally.n_entries += 1
        self.tally.n_saved += 1

    def grow(self, entry: Entry) -> None:
        """Raise the limit by an entry."""
        self.tally.limit_bytes += entry.n_bytes + _OVERHEAD

    def shrink(self) -> None:
        """Halve the limit: the system has no more memory."""
        self.tally.limit_bytes //= 2
        self._make_room(0)

    def _make_room(self, size: int) -> None:
        """Evict entries until ``size`` bytes fit, and some more."""
        now = time.monotonic()
        aim = min(self.tally.limit_bytes - size, int(_KEPT * self.tally.limit_bytes))

        def order(key: bytes) -> tuple[float, int]:
            entry, _, used = self._held[key]
            return eviction_order(entry.n_bytes, entry.n_tokens, entry.n_past, now - used)

        for key in sorted(self._held, key=order, reverse=True):
            if self.tally.n_bytes <= aim:
                return
            entry, _, _ = self._held.pop(key)
            self.tally.n_bytes -= entry.n_bytes + _OVERHEAD
            self.tally.n_entries -= 1
            self.tally.n_evicted += 1
