"""Block tables of sequences, and the keys of blocks, which equal prefixes share."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import count

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
