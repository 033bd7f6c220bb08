"""Prefix caching: block tables, keys and holders of blocks, which equal prefixes share; copies of recurrent states."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from itertools import count, islice

import numpy as np
from numpy.typing import NDArray

_versions = count()


class BlockTables:
    """A sequence's blocks: an int32 table per attention window, with -1 for blocks that are not held."""

    def __init__(self, windows: Sequence[int], n_max: int, block_size: int, salt: bytes = b"") -> None:
        self.block_size = block_size
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
        rest = BlockTables((), 0, self.block_size)
        rest.tables = {w: np.append(table[n:], np.full(n, -1, np.int32)) for w, table in self.tables.items()}
        rest.n_blocks = self.n_blocks - n
        return rest

    def changed(self) -> None:
        """Give the tables another version."""
        self.version = next(_versions)

    def key(self, index: int, tokens: Sequence[int]) -> bytes:
        """Return the key of block ``index`` of a sequence's tokens; those of the blocks before it are known."""
        first = index * self.block_size
        return key_of(self.parent(index), tokens[first : first + self.block_size])

    def parent(self, index: int) -> bytes:
        """Return the key that precedes block ``index``."""
        if index:
            return self.keys[index - 1]
        # Hashed, as long as any key: else a salt that ends with tokens would give the key of other tokens.
        return hashlib.blake2b(self.salt, digest_size=32, person=b"salt").digest()


def key_of(parent: bytes, tokens: Sequence[int]) -> bytes:
    """Return a block's key, which continues the previous key, since its contents depend on all earlier tokens."""
    return hashlib.blake2b(parent + np.asarray(tokens, np.int32).tobytes(), digest_size=32).digest()


def oldest_block(window: int, n_past: int, block_size: int) -> int:
    """Return the first block that a query at position ``n_past`` or later can attend to."""
    return max(0, n_past - window + 1) // block_size if window else 0


class BlockPool:
    """The blocks of all layers with one attention window.

    A block is held by one or more sequences. A published block without holders stays findable by its key until its
    memory is needed, oldest first; ``on_evict`` is called before, with the block and its key.
    """

    def __init__(self, n_blocks: int) -> None:
        self._empty = list(range(n_blocks))[::-1]
        self._holders = [0] * n_blocks
        self._key_of: dict[int, bytes] = {}
        self._block_of: dict[bytes, int] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()  # published blocks without holders
        self.on_evict: Callable[[int, bytes], None] = lambda block, key: None

    @property
    def available(self) -> int:
        return len(self._empty) + len(self._idle)

    def take(self) -> int:
        """Return a block for new contents. The caller ensures that one is available."""
        if not self._empty:
            block = next(iter(self._idle))
            self.on_evict(block, self._key_of[block])
            del self._idle[block]
            del self._block_of[self._key_of.pop(block)]
            self._empty.append(block)
        block = self._empty.pop()
        self._holders[block] = 1
        return block

    def publish(self, block: int, key: bytes) -> None:
        """Make a full block findable by its contents, unless an equal one already is."""
        if key not in self._block_of and block not in self._key_of:
            self._block_of[key] = block
            self._key_of[block] = key

    def knows(self, key: bytes) -> bool:
        return key in self._block_of

    def find(self, key: bytes) -> int | None:
        """Return the block published under ``key``, or None."""
        return self._block_of.get(key)

    def idle(self, most: int) -> list[tuple[int, bytes]]:
        """Return the first blocks, and their keys, that ``take`` would use for new contents, at most ``most``."""
        return [(block, self._key_of[block]) for block in islice(self._idle, most)]

    def is_idle(self, key: bytes) -> bool:
        """Return True if a block without holders is published under ``key``."""
        return self._block_of.get(key) in self._idle

    def forget(self) -> None:
        """Forget the contents of all blocks."""
        self._empty += self._idle
        self._idle.clear()
        self._key_of.clear()
        self._block_of.clear()

    def share(self, key: bytes) -> int:
        """Add a holder to the block published under ``key``."""
        block = self._block_of[key]
        self._idle.pop(block, None)
        self._holders[block] += 1
        return block

    def claim(self, key: bytes) -> int:
        """Take the block published under ``key``, which has no holders, for other contents."""
        block = self._block_of.pop(key)
        del self._key_of[block], self._idle[block]
        self._holders[block] = 1
        return block

    def release(self, block: int) -> None:
        self._holders[block] -= 1
        if self._holders[block]:
            return
        if block in self._key_of:
            self._idle[block] = None
        else:
            self._empty.append(block)


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
