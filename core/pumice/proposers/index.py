"""What proposers look drafts up in: an n-gram index of a growing text, and data by salt that outlives sequences."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence, Sized
from contextlib import contextmanager
from typing import Generic, TypeVar

import numpy as np

Kept = TypeVar("Kept", bound=Sized)

LONGEST = 32  # maximum compared tokens of a match
PLACES = 8  # latest occurrences compared per match
WALKED = 256  # latest positions with the hash of an n-gram among which its occurrences are looked for
SMALLEST = 8  # binary logarithm of the entries of an empty hash table
MANY = 32  # new positions from which NumPy is faster
FACTOR = 0x9E3779B1  # of multiplicative hashing, near 2^32 divided by the golden ratio
WORD = 0xFFFFFFFF


class Index:
    """The positions of each n-gram in a text of tokens.

    A hash table has the latest position of each n-gram, and a chain for each position leads to earlier ones with the
    same hash. So a token takes 16 to 24 bytes, whatever the text is.

    Args:
        n: length of the n-grams, and of the shortest match.
    """

    def __init__(self, n: int) -> None:
        self.tokens = array("i")
        self._n = n
        self._before = array("i")  # of each position, the one before with the same hash; 0: none
        self._latest = array("i", bytes(4 << SMALLEST))  # by hash; 0: none
        self._shift = 32 - SMALLEST

    def __len__(self) -> int:
        return len(self.tokens)

    def extend(self, tokens: Sequence[int]) -> None:
        """Append tokens to the text. Their n-grams are entered before the next search, all at once."""
        self.tokens.extend(tokens)

    def _enter(self) -> None:
        """Enter the n-grams that got a continuation since the last search: the last one of a text has none yet."""
        text, n, before = self.tokens, self._n, self._before
        ends = range(max(len(before), n), len(text))
        before.frombytes(bytes(4 * (len(text) - len(before))))
        if len(text) > len(self._latest):
            n_bits = len(text).bit_length()
            self._latest, self._shift = array("i", bytes(4 << n_bits)), 32 - n_bits
            ends = range(n, len(text))
        if len(ends) >= MANY:
            self._enter_many(ends)
            return
        latest = self._latest
        for end in ends:
            key = self._key(text[end - n : end])
            before[end] = latest[key]
            latest[key] = end

    def _key(self, ngram: Sequence[int]) -> int:
        """Return the hash of an n-gram, the highest bits of a product of its tokens."""
        value = 0
        for token in ngram:
            value = (value + token) * FACTOR & WORD
        return value >> self._shift

    def _enter_many(self, ends: range) -> None:
        """Enter many positions by NumPy."""
        text = np.frombuffer(self.tokens, np.uint32)
        keys = np.zeros(len(ends), np.uint32)
        for i in range(self._n):
            first = ends.start - self._n + i
            keys = (keys + text[first : first + len(ends)]) * np.uint32(FACTOR)
        keys >>= np.uint32(self._shift)
        order = np.argsort(keys, kind="stable")
        keys, places = keys[order], (order + ends.start).astype(np.int32)
        follows = keys[1:] == keys[:-1]
        before, latest = np.frombuffer(self._before, np.int32), np.frombuffer(self._latest, np.int32)
        before[places[0]] = latest[keys[0]]
        before[places[1:]] = np.where(follows, places[:-1], latest[keys[1:]])
        last = np.append(~follows, True)
        latest[keys[last]] = places[last]

    def occurrences(self, past: array[int]) -> Iterator[int]:
        """Yield the positions after occurrences of the last ``n`` tokens of ``past``, latest first."""
        self._enter()
        ngram = past[-self._n :]
        end = self._latest[self._key(ngram)] if len(ngram) == self._n else 0
        for _ in range(WALKED):
            if not end:
                break
            if self.tokens[end - self._n : end] == ngram:
                yield end
            end = self._before[end]

    def match(self, past: array[int]) -> tuple[int, int]:
        """Return the position after the longest match of the end of ``past``, and its length; 0 and 0 without a match.

        Of several matches with equal length, the latest is returned.
        """
        self._enter()
        best = place = 0
        if len(past) < self._n:
            return 0, 0
        end = self._latest[self._key(past[-self._n :])]
        for _ in range(PLACES):
            if not end:
                break
            length = self._length(past, end, best)
            if length > best:
                best, place = length, end
                if best == LONGEST:
                    break
            end = self._before[end]
        return place, best

    def _length(self, past: array[int], end: int, best: int) -> int:
        """Return the number of equal tokens before ``end`` and at the end of ``past``; 0 if at most ``best``."""
        text = self.tokens
        most = min(LONGEST, end, len(past))
        if best >= most or (best and text[end - best - 1] != past[-best - 1]):
            return 0
        length = 0
        while length < most and text[end - length - 1] == past[-length - 1]:
            length += 1
        return length if length >= self._n else 0


class BySalt(Generic[Kept]):
    """Collections by salt; the salt not used for longest is forgotten first.

    Args:
        make: returns an empty collection.
        most: maximum total of the collections' lengths and of the bytes of their salts.
    """

    def __init__(self, make: Callable[[], Kept], most: int) -> None:
        self._make = make
        self._most = most
        self._kept: OrderedDict[bytes, Kept] = OrderedDict()
        self._n = 0

    def of(self, salt: bytes) -> Kept | None:
        """Return the collection of a salt, if there is one."""
        return self._kept.get(salt)

    @contextmanager
    def growing(self, salt: bytes) -> Iterator[Kept]:
        """Lend the collection of a salt to be added to, and then forget the oldest salts beyond the bound."""
        kept = self._kept.pop(salt, None)
        if kept is None:
            kept = self._make()
        else:
            self._n -= len(salt) + len(kept)
        yield kept
        if len(kept):
            self._kept[salt] = kept
            self._n += len(salt) + len(kept)
        while self._n > self._most:
            oldest, forgotten = self._kept.popitem(last=False)
            self._n -= len(oldest) + len(forgotten)
