"""Entries of cache tiers, their counts, and the order of eviction."""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass
from typing import Annotated

from msgspec import Meta

TierCount = Annotated[int, Meta(ge=0, le=2**63 - 1)]

_SOON = 64.0  # seconds within which uses count as simultaneous


@dataclass(frozen=True)
class Entry:
    """The identity of stored bytes.

    Attributes:
        key: 32 bytes, a hash of everything that the bytes are computed from.
        n_past: tokens of the sequence up to the entry's end.
        n_tokens: tokens that would be computed again without it: those of a block, or all up to a recurrent state.
        n_bytes: size of the bytes.
    """

    key: bytes
    n_past: int
    n_tokens: int
    n_bytes: int


@dataclass
class Tally:
    """Contents of a cache tier in bytes and entries, and counts since the model was loaded."""

    limit_bytes: TierCount = 0
    n_bytes: TierCount = 0
    n_entries: TierCount = 0
    n_saved: TierCount = 0
    n_loaded: TierCount = 0
    n_evicted: TierCount = 0
    n_refused: TierCount = 0  # damaged entries, and those that could not be written

    def __add__(self, other: Tally) -> Tally:
        return Tally(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))


def eviction_order(n_bytes: int, n_tokens: int, n_past: int, age: float) -> tuple[float, int]:
    """Return a key by which entries sort: the highest is evicted first.

    This is hyperbolic caching (Blankstein et al. 2017, USENIX ATC) with one use per entry: bytes times age, per token
    of work that the entry saves. Ages are rounded down to powers of two, so that entries of one prompt are equally old:
    of these, the last of the prompt goes first, since a block is useless without those before it.

    Args:
        n_bytes: bytes that the entry takes.
        n_tokens: tokens to be computed again without it.
        n_past: tokens of the sequence up to its end.
        age: seconds since the last use.
    """
    age = 2.0 ** math.floor(math.log2(max(age, _SOON)))
    return age * n_bytes / max(n_tokens, 1), n_past
