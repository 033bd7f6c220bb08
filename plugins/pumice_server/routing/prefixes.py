"""An estimate of which replicas have a prefix of a prompt in their caches."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Hashable, Iterator, Sequence

BLOCK = 32  # positions per cache block
_MAX_BLOCKS = 200_000  # limit of remembered blocks


class Prefixes:
    """Blocks of prompts sent to replicas. A block's key is the hash of all tokens up to its end."""

    def __init__(self, max_blocks: int = _MAX_BLOCKS) -> None:
        self._max_blocks = max_blocks
        self._holders: OrderedDict[int, set[Hashable]] = OrderedDict()  # least recently used first

    def add(self, tokens: Sequence[int], salt: str, replica: Hashable) -> None:
        """Record that a replica caches this prompt."""
        for name in _blocks(tokens, salt):
            self._holders.setdefault(name, set()).add(replica)
            self._holders.move_to_end(name)
        while len(self._holders) > self._max_blocks:
            self._holders.popitem(last=False)

    def holders(self, tokens: Sequence[int], salt: str, replicas: Collection[Hashable]) -> tuple[int, set[Hashable]]:
        """Return the length of the longest cached prefix, and the replicas that hold it; all of them for 0."""
        depth, holders = 0, set(replicas)
        for name in _blocks(tokens, salt):
            deeper = self._holders.get(name, set()) & holders
            if not deeper:
                break
            depth, holders = depth + BLOCK, deeper
        return depth, holders


def _blocks(tokens: Sequence[int], salt: str) -> Iterator[int]:
    name = hash(salt)
    for end in range(BLOCK, len(tokens) + 1, BLOCK):
        name = hash((name, *tokens[end - BLOCK : end]))
        yield name
