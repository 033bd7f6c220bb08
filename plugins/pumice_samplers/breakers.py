"""Sequence breakers of DRY, as token sequences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

from pumice.plugin import Tokenizer

_MOST_TOKENS = 20

Cuts = frozenset[tuple[int, int]]
"""Pairs of a breaker's number and the length of its prefix that a token ends with."""


@dataclass
class TrieNode:
    """A node of a trie: the next tokens that may complete a breaker, and whether a breaker is complete here."""

    next: dict[int, TrieNode] = field(default_factory=dict)
    complete: bool = False

    def add(self, tokens: Sequence[int]) -> None:
        """Add a token sequence that completes a breaker from here."""
        node = self
        for token in tokens:
            node = node.next.setdefault(token, TrieNode())
        node.complete = True


class Breakers:
    """Sequence breakers as token sequences; continuations of a token are computed at its first occurrence."""

    def __init__(self, strings: Sequence[str], tokenizer: Tokenizer | None) -> None:
        """Without a tokenizer there are no breakers."""
        self._tokenizer = tokenizer
        self._texts = [text for text in dict.fromkeys(strings) if text] if tokenizer is not None else []
        self._nodes: dict[int, TrieNode | None] = {}
        self._by_cuts: dict[Cuts, TrieNode | None] = {}
        self._tails = cache(self._tail)

    def after(self, token: int) -> TrieNode | None:
        """Return the completions of breakers that begin inside a token; None without any."""
        if not self._texts:
            return None
        if token not in self._nodes:
            cuts = self._cuts(token)
            if cuts not in self._by_cuts:
                self._by_cuts[cuts] = self._trie(cuts)
            self._nodes[token] = self._by_cuts[cuts]
        return self._nodes[token]

    def is_one(self, token: int) -> bool:
        """Return True if a token contains a whole breaker."""
        node = self.after(token)
        return node is not None and node.complete

    def _cuts(self, token: int) -> Cuts:
        if self._tokenizer is None or token >= self._tokenizer.n_vocab:
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

    def _trie(self, cuts: Cuts) -> TrieNode | None:
        if not cuts:
            return None
        root = TrieNode()
        for i, n in cuts:
            root.add(self._tails(self._texts[i][n:]))
        return root

    def _tail(self, text: str) -> tuple[int, ...]:
        if self._tokenizer is None or not text:
            return ()
        return tuple(self._tokenizer.tokenize(text, False, False)[:_MOST_TOKENS])


class Breaks:
    """Tracks the last breaker of a sequence incrementally, at constant cost per token."""

    def __init__(self, breakers: Breakers) -> None:
        self._breakers = breakers
        self._open: list[tuple[int, TrieNode]] = []  # incomplete breakers, with the positions of their first tokens
        self._n = 0
        self._begin, self._end = -1, -1  # first and last token of the last breaker

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
        """Count those of the last ``n`` tokens behind the last breaker that begins among them; ``n`` without one."""
        n = min(n, self._n)
        return self._n - 1 - self._end if self._begin >= self._n - n and self._begin >= 0 else n
