"""Checkpoints: copies of recurrent states after prefixes, from which other sequences with such a prefix continue."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

Tail = tuple[int, ...]


class Checkpoints:
    """The slots of recurrent state besides those of running sequences; the least recently used is replaced.

    A checkpoint is identified by the key of the full blocks before it, and by its tail, the tokens after them.
    ``on_evict`` is called with the slot and the key before one without a tail is replaced.
    """

    def __init__(self, slots: Iterable[int]) -> None:
        self._empty = list(slots)[::-1]
        self._slot_of: OrderedDict[tuple[bytes, Tail], int] = OrderedDict()
        self._tails: dict[bytes, set[Tail]] = {}
        self._seen: OrderedDict[bytes, None] = OrderedDict()
        self._most_seen = 1 << 16  # maximum keys of blocks to remember
        self.on_evict: Callable[[int, bytes], None] = lambda slot, key: None

    @property
    def available(self) -> int:
        """Return the number of available slots."""
        return len(self._empty) + len(self._slot_of)

    def take(self) -> int:
        """Return a slot for a private copy until it is given back. The caller ensures that one is available."""
        if not self._empty:
            (parent, tail), slot = next(iter(self._slot_of.items()))
            if not tail:
                self.on_evict(slot, parent)
            del self._slot_of[parent, tail]
            self._tails[parent].discard(tail)
            if not self._tails[parent]:
                del self._tails[parent]
            self._empty.append(slot)
        return self._empty.pop()

    def give_back(self, slots: Iterable[int]) -> None:
        self._empty += slots

    def keep(self, parent: bytes, tail: Sequence[int]) -> int | None:
        """Return the slot for a copy of a state; None without one, or if the state is already kept."""
        key = parent, tuple(tail)
        if key in self._slot_of:
            self._slot_of.move_to_end(key)
            return None
        if not self.available:
            return None
        self._slot_of[key] = slot = self.take()
        self._tails.setdefault(parent, set()).add(key[1])
        return slot

    def tails(self, parent: bytes) -> list[Tail]:
        """Return the tails of the states kept after these blocks, longest first."""
        return sorted(self._tails.get(parent, ()), key=len, reverse=True)

    def holds(self, parent: bytes) -> bool:
        """Return True if the state directly after these blocks is kept."""
        return (parent, ()) in self._slot_of

    def find(self, parent: bytes, tail: Sequence[int]) -> int:
        """Return the slot of a kept state."""
        key = parent, tuple(tail)
        self._slot_of.move_to_end(key)
        return self._slot_of[key]

    def forget(self) -> None:
        """Forget all states."""
        self._empty += self._slot_of.values()
        self._slot_of.clear()
        self._tails.clear()
        self._seen.clear()

    def see(self, key: bytes) -> None:
        """Record that a sequence had this full block."""
        self._seen[key] = None
        self._seen.move_to_end(key)
        if len(self._seen) > self._most_seen:
            self._seen.popitem(last=False)

    def seen(self, key: bytes) -> bool:
        """Return True if a sequence had this block: where two sequences diverge, the state is worth keeping."""
        return key in self._seen
