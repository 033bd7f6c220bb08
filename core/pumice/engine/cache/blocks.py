"""Prefix caching: ownership of KV cache blocks, and keys of full blocks, which equal prefixes share."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from itertools import islice


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
