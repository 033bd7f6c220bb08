"""Buckets: the sizes of steps that command buffers are recorded for; a step takes the smallest that it fits in."""

from __future__ import annotations

from typing import NamedTuple

from pumice.plugin import N_OUTPUTS, N_SEQS, N_TOKENS, Limits, Sizes


class Bucket(NamedTuple):
    """The most tokens and the most output rows of a step; ``lone``: each token is the only one of its sequence."""

    n_tokens: int
    n_outputs: int
    lone: bool = False


class Buckets:
    """All of a program, the smallest first.

    Powers of two up to the largest step, each for one output row and for as many as it can have; before them those
    for lone tokens of as many sequences as there can be.
    """

    def __init__(self, limits: Limits) -> None:
        sizes = [1]
        while sizes[-1] < limits.n_batch:
            sizes.append(min(2 * sizes[-1], limits.n_batch))
        buckets = {Bucket(n, m, lone=n == 1) for n in sizes for m in (1, min(n, limits.n_outputs))}
        most = min(limits.n_seqs, limits.n_outputs, limits.n_batch)
        buckets |= {Bucket(n, min(n, limits.n_outputs), lone=True) for n in sizes if n < 2 * most}
        self.all = sorted(buckets, key=lambda bucket: (bucket.n_tokens, not bucket.lone, bucket.n_outputs))

    def of(self, sizes: Sizes) -> Bucket:
        """That of a step."""
        n_tokens, n_outputs = sizes[N_TOKENS], sizes[N_OUTPUTS]
        lone = n_tokens == 1 or n_tokens == sizes[N_SEQS] == n_outputs
        fitting = (b for b in self.all if b.n_tokens >= n_tokens and b.n_outputs >= n_outputs)
        return next(bucket for bucket in fitting if lone or not bucket.lone)


def bucket_sizes(limits: Limits, n_tokens: int, n_outputs: int) -> Sizes:
    """The largest numbers of steps with at most so many tokens and output rows."""
    return {N_TOKENS: n_tokens, N_OUTPUTS: n_outputs, N_SEQS: min(n_tokens, limits.n_seqs)}
