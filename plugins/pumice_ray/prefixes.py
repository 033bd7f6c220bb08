"""Which replica has the longest beginning of a prompt in its cache, as far as who routes can know."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Hashable, Iterator, Sequence

BLOCK = 32  # positions of a block of the cache
_MAX_BLOCKS = 200_000  # that are remembered


class Prefixes:
    """Blocks of prompts that were sent to replicas. A block's name is the hash of all tokens up to its end."""

    def __init__(self, max_blocks: int = _MAX_BLOCKS) -> None:
        self._max_blocks = max_blocks
        self._holders: OrderedDict[int, set[Hashable]] = OrderedDict()  # the one not used for longest first

    def add(self, tokens: Sequence[int], salt: str, replica: Hashable) -> None:
        """A replica reads this prompt, and keeps it."""
        for name in _blocks(tokens, salt):
            self._holders.setdefault(name, set()).add(replica)
            self._holders.move_to_end(name)
        while len(self._holders) > self._max_blocks:
            self._holders.popitem(last=False)

    def holders(self, tokens: Sequence[int], salt: str, replicas: Collection[Hashable]) -> tuple[int, set[Hashable]]:
        """How many positions are held at most, and which of ``replicas`` hold so many; of none all do."""
        depth, found = 0, set(replicas)
        for name in _blocks(tokens, salt):
            deeper = self._holders.get(name, set()) & found
            if not deeper:
                break
            depth, found = depth + BLOCK, deeper
        return depth, found


def _blocks(tokens: Sequence[int], salt: str) -> Iterator[int]:
    name = hash(salt)
    for end in range(BLOCK, len(tokens) + 1, BLOCK):
        name = hash((name, *tokens[end - BLOCK : end]))
        yield name
