"""Sequence breakers of DRY, as token sequences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

_MOST_TOKENS = 20

Cuts = frozenset[tuple[int, int]]
"""A breaker's number, and how many of its characters a token's end has; each such pair of a token."""


@dataclass
class Node:
    """Of a trie: the tokens that may come next to complete a breaker, and whether it is complete here."""

    next: dict[int, Node] = field(default_factory=dict)
    complete: bool = False

    def add(self, tokens: Sequence[int]) -> None:
        """Have these tokens complete a breaker from here."""
        node = self
        for token in tokens:
            node = node.next.setdefault(token, Node())
        node.complete = True


class Breakers:
    """Where a repetition may not continue: what completes a breaker after a token, found when that first comes."""

    def __init__(self, strings: Sequence[str], tokenizer: Any) -> None:
        """Without a tokenizer there are none."""
        self._tokenizer = tokenizer
        self._texts = [text for text in dict.fromkeys(strings) if text] if tokenizer is not None else []
        self._nodes: dict[int, Node | None] = {}
        self._by_cuts: dict[Cuts, Node | None] = {}
        self._tails = cache(self._tail)

    def after(self, token: int) -> Node | None:
        """What completes a breaker that begins in a token; None if none does."""
        if not self._texts:
            return None
        if token not in self._nodes:
            cuts = self._cuts(token)
            if cuts not in self._by_cuts:
                self._by_cuts[cuts] = self._trie(cuts)
            self._nodes[token] = self._by_cuts[cuts]
        return self._nodes[token]

    def is_one(self, token: int) -> bool:
        """Whether a token contains a breaker by itself."""
        node = self.after(token)
        return node is not None and node.complete

    def _cuts(self, token: int) -> Cuts:
        if token >= self._tokenizer.n_vocab:
            return frozenset()
        word = self._tokenizer.detokenize([token], special=True)
        cuts = set()
        for i, text in enumerate(self._texts):
            if text in word:
                cuts.add((i, len(text)))
            elif text[0] in word:
                most = min(len(text) - 1, len(word))
                cuts |= {(i, n) for n in range(1, most + 1) if word.endswith(text[:n])}
        return frozenset(cuts)

    def _trie(self, cuts: Cuts) -> Node | None:
        if not cuts:
            return None
        root = Node()
        for i, n in cuts:
            root.add(self._tails(self._texts[i][n:]))
        return root

    def _tail(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer.tokenize(text, False, False)[:_MOST_TOKENS]) if text else ()


class Breaks:
    """The last breaker of a sequence, kept as its tokens come: each costs as much, however long the sequence is."""

    def __init__(self, breakers: Breakers) -> None:
        self._breakers = breakers
        self._open: list[tuple[int, Node]] = []  # breakers that may still be completed, by where they began
        self._n = 0
        self._begin, self._end = -1, -1  # of the last one: its first and its last token

    def append(self, token: int) -> None:
        coming = [(begin, node.next[token]) for begin, node in self._open if token in node.next]
        node = self._breakers.after(token)
        if node is not None:
            coming.append((self._n, node))
        for begin, node in coming:
            if node.complete and begin >= self._begin:
                self._begin, self._end = begin, self._n
        self._open = [(begin, node) for begin, node in coming if node.next]
        self._n += 1

    def distance(self, n: int) -> int:
        """How many of the last ``n`` tokens follow the last breaker that begins among them; all if none does."""
        n = min(n, self._n)
        return self._n - 1 - self._end if self._begin >= self._n - n and self._begin >= 0 else n
