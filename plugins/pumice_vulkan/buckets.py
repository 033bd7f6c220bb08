"""Buckets: the step sizes for which command buffers are recorded; a step uses the smallest bucket that fits."""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

from pumice.plugin import N_OUTPUTS, N_SEQS, N_TOKENS
from pumice.plugin.unstable import Limits, Sizes

LONG_PROMPT = 128  # tokens of a step of a prompt that first requests are likely to have
LEAST_BETWEEN = 32  # single tokens from which on there are buckets between powers of two


class Bucket(NamedTuple):
    """Maximum tokens and output rows of a step; ``lone``: each token is the only one of its sequence."""

    n_tokens: int
    n_outputs: int
    lone: bool = False


class Buckets:
    """All buckets of a program, smallest first.

    Buckets of single tokens for up to the maximum number of sequences, powers of two and from 32 on 3/2 of these, then
    powers of two up to the largest step, each for one output row and for the maximum.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        sizes = [1]
        while sizes[-1] < limits.n_batch:
            sizes.append(min(2 * sizes[-1], limits.n_batch))
        buckets = {Bucket(n, m, lone=n == 1) for n in sizes for m in (1, min(n, limits.n_outputs))}
        most = min(limits.n_seqs, limits.n_outputs, limits.n_batch)
        lone = [n for n in sizes if n < 2 * most]
        lone += [3 * n // 2 for n in sizes if LEAST_BETWEEN <= n < most and 3 * n // 2 < limits.n_batch]
        buckets |= {Bucket(n, min(n, limits.n_outputs), lone=True) for n in lone}
        self.all = sorted(buckets, key=lambda bucket: (bucket.n_tokens, not bucket.lone, bucket.n_outputs))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return the numbers of tokens of steps with several tokens of a sequence, ascending."""
        return tuple(sorted({bucket.n_tokens for bucket in self.all if not bucket.lone}))

    def of(self, sizes: Sizes, ready: Container[Bucket] | None = None) -> Bucket:
        """Return the bucket of a step, or a larger one among those that are ``ready``, if any.

        A step of one sequence always uses its own bucket: the set of ready buckets depends on time, and so would the
        rounding of results. With several sequences the composition of steps depends on time anyway.
        """
        n_tokens, n_outputs = sizes[N_TOKENS], sizes[N_OUTPUTS]
        lone = n_tokens == 1 or n_tokens == sizes[N_SEQS] == n_outputs
        fitting = (
            bucket
            for bucket in self.all
            if bucket.n_tokens >= n_tokens
            and bucket.n_outputs >= n_outputs
            and (lone or not bucket.lone)
            and self._has_room(bucket, sizes)
        )
        smallest = next(fitting)
        if ready is None or sizes[N_SEQS] == 1 or smallest in ready:
            return smallest
        return next((bucket for bucket in fitting if bucket in ready), smallest)

    def _has_room(self, bucket: Bucket, sizes: Sizes) -> bool:
        """Return True if the sizes that the architecture names fit."""
        if not self._limits.more_sizes:
            return True
        most = bucket_sizes(self._limits, bucket.n_tokens, bucket.n_outputs)
        return all(sizes.get(name, 0) <= most[name] for name in self._limits.more_sizes)

    @property
    def n_needed(self) -> int:
        """Return how many of the first of ``likely`` a server needs before its first request.

        The others are small steps of prompts. They take larger buckets until theirs are ready, or wait for it where
        they are a single sequence's: 10 to 30 ms at most.
        """
        return 2 + sum(_is_needed(bucket) for bucket in self.likely[2:])

    @property
    def likely(self) -> list[Bucket]:
        """Return all buckets in the order of their preparation, those that can replace most others first.

        The largest; single tokens, for which no larger bucket is used; one token of each of several sequences; long
        prompts of one; prompts with many output rows; short prompts of one.
        """

        def order(bucket: Bucket) -> tuple[bool, bool, bool, int]:
            return not _is_needed(bucket), not bucket.lone, bucket.n_outputs == 1, -bucket.n_tokens

        return [*dict.fromkeys([self.all[-1], self.all[0], *sorted(self.all[1:-1], key=order)])]

    @property
    def served(self) -> list[Bucket]:
        """Return the buckets of a server's usual steps: long prompts, and one token of each of several sequences."""
        long = [bucket for bucket in self.all if not bucket.lone and bucket.n_tokens >= LONG_PROMPT]
        return [*long, *(bucket for bucket in self.all if bucket.lone and bucket.n_tokens > 1)]


def _is_needed(bucket: Bucket) -> bool:
    """Return True unless larger buckets may take a first request's steps."""
    if bucket.lone:
        return bucket.n_tokens % 3 != 0
    return bucket.n_outputs == 1 and bucket.n_tokens >= LONG_PROMPT


def bucket_sizes(limits: Limits, n_tokens: int, n_outputs: int) -> Sizes:
    """Return the sizes of the largest step with at most ``n_tokens`` tokens and ``n_outputs`` output rows.

    Sizes that the architecture names have the same share of their maximum as the tokens of theirs.
    """
    more = {name: -(-most * n_tokens // limits.n_batch) for name, most in limits.more_sizes.items()}
    return {N_TOKENS: n_tokens, N_OUTPUTS: n_outputs, N_SEQS: min(n_tokens, limits.n_seqs), **more}
