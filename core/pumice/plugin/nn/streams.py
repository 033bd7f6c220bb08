"""Hyper-connections: several concatenated residual streams, ``[t, n_streams * n_embd]``.

A block reads a mixture of the streams, and its result is added to each stream by a weight (Zhu et al. 2024,
arXiv:2409.19606).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

from pumice.plugin import N_TOKENS, GraphBuilder, HParams, Tensor
from pumice.plugin.nn.blocks import linear, output_head
from pumice.plugin.nn.decoder import Decoder

MOST_STREAMS = 64
MOST_ITERATIONS = 64


@dataclass(frozen=True)
class Streams:
    """Hyper-connections. ``eps`` is that of the norm before the weights, ``least`` is added to each weight."""

    n: int
    n_embd: int
    eps: float
    least: float
    n_iterations: int = 0  # above 0 a block's result does not just join the streams: these are mixed as well

    def start(self, g: GraphBuilder, x: Tensor) -> Tensor:
        """Initialize every stream with ``x [t, n_embd]``."""
        return reduce(g.concat, [x] * self.n)

    def mixes(self, g: GraphBuilder, x: Tensor, name: str) -> list[Tensor]:
        """Return the weights by which a block reads and writes the streams, and optionally mixes them."""
        n = self.n
        return self._affine(g, x, name, [n, n, n * n] if self.n_iterations else [n, n])

    def read(self, g: GraphBuilder, x: Tensor, mixes: list[Tensor]) -> Tensor:
        """Return a block's input, a mixture of the streams: ``[t, n_embd]``."""
        return self._mixture(g, x, g.scale(g.sigmoid(mixes[0]), 1.0, self.least))

    def write(
        self, g: GraphBuilder, x: Tensor, y: Tensor, mixes: list[Tensor], magnitude: float, least: float = 0.0
    ) -> Tensor:
        """Add a block's result ``y [t, n_embd]`` to the streams, weighted from ``least`` to ``least + magnitude``."""
        _, write, *between = mixes
        n, write = self.n, g.scale(g.sigmoid(write), magnitude, least)
        added = reduce(g.concat, [y * g.slice(write, j, j + 1) for j in range(n)])
        if not between:
            return x + added
        shares = g.sinkhorn(between[0].reshape(x.shape[0], n, n), self.n_iterations, self.least)
        columns = [g.slice(shares, j, j + 1).reshape(x.shape[0], n) for j in range(n)]
        return reduce(g.concat, [self._mixture(g, x, column) for column in columns]) + added

    def end(self, g: GraphBuilder, x: Tensor, name: str = "output_hc") -> Tensor:
        """Return the weighted sum of the streams: ``[t, n_embd]``."""
        return self.read(g, x, self._affine(g, x, name, [self.n]))

    def mean(self, g: GraphBuilder, x: Tensor) -> Tensor:
        """Return the mean of the streams: ``[t, n_embd]``."""
        return g.sum(x.reshape(x.shape[0], self.n, self.n_embd), axis=-2) * (1 / self.n)

    def _affine(self, g: GraphBuilder, x: Tensor, name: str, sizes: list[int]) -> list[Tensor]:
        """Return ``[t, size]`` weights for each use, which has a scale and ``size`` biases."""
        total = sum(sizes)
        mixed = g.linear(g.rms_norm(x, None, self.eps), g.weight(f"{name}_fn.weight", (total, self.n * self.n_embd)))
        scales, bases = g.weight(f"{name}_scale.weight", (len(sizes),)), g.weight(f"{name}_base.weight", (total,))
        results, start = [], 0
        for i, size in enumerate(sizes):
            part = g.slice(mixed, start, start + size) * scales.rows(i, i + 1)
            results.append(part + bases.rows(start, start + size))
            start += size
        return results

    def _mixture(self, g: GraphBuilder, x: Tensor, weights: Tensor) -> Tensor:
        """Return the streams added by ``weights [t, n_streams]``: ``[t, n_embd]``."""
        return g.expert_sum(x.reshape(x.shape[0], self.n, self.n_embd), weights)


@dataclass(frozen=True)
class GatedStreams(Streams):
    """Normalized streams with gated values: a matrix of low ``rank`` makes the gates.

    The weights of writing derive from the normalized streams, too (Qwen4-Exp).
    """

    rank: int = 0

    def mixes(self, g: GraphBuilder, x: Tensor, name: str) -> list[Tensor]:
        normed = self.norm(g, x, f"{name}_norm")
        return [self._mean_opened(g, normed, name), linear(g, normed, f"{name}_inject", self.n) * (1 / self.n)]

    def read(self, g: GraphBuilder, x: Tensor, mixes: list[Tensor]) -> Tensor:
        return mixes[0]

    def end(self, g: GraphBuilder, x: Tensor, name: str = "output_hc") -> Tensor:
        return self._mean_opened(g, self.norm(g, x, f"{name}_norm"), name)

    def norm(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        """Normalize each stream of ``x``; the file has their weights as one row or as several."""
        weight, shape = g.weight(f"{name}.weight"), (self.n, self.n_embd)
        if weight.shape != shape:
            flat = g.weight(f"{name}.weight", (self.n * self.n_embd,))
            weight = g.derived(f"{name}, by stream", shape, lambda values: values.reshape(shape), flat)
        return g.rms_norm(x.reshape(x.shape[0], *shape), weight, self.eps).reshape(*x.shape)

    def _mean_opened(self, g: GraphBuilder, normed: Tensor, name: str) -> Tensor:
        low = g.silu(linear(g, normed, f"{name}_down", self.rank) * (1 / self.n))
        return self.mean(g, normed * g.sigmoid(linear(g, low, f"{name}_up", self.n * self.n_embd)))


class StreamDecoder(Decoder):
    """A decoder with several residual streams; ``attn`` and ``ffn`` name the tensors of its two blocks."""

    streams: Streams
    #: Maximum weight of a block's result in each stream, minus ``least_written``, and its minimum.
    magnitude: float = 2.0
    least_written: float = 0.0

    def embed(self, g: GraphBuilder) -> Tensor:
        return self.streams.start(g, super().embed(g))

    def layer(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        for name, block in (("attn", self.attention), ("ffn", self.feed_forward)):
            mixes = self.streams.mixes(g, x, f"{blk}hc_{name}")
            y = block(g, self.normed(g, self.streams.read(g, x, mixes), f"{blk}{name}_norm"), blk, i)
            x = self.streams.write(g, x, y, mixes, self.magnitude, self.least_written)
        return x

    def draft_input(self, g: GraphBuilder, token: Tensor, name: str) -> Tensor:
        """Return the draft's streams, each of which joins the token with its own state."""
        shape = g.tokens.shape[0], self.streams.n, self.n_embd
        n = self.streams.n * self.n_embd
        before = g.input("hidden", (N_TOKENS, n)).reshape(*shape)
        both = g.concat(self.streams.start(g, token).reshape(*shape), self.norm(g, before, f"{name}hnorm"))
        return linear(g, both, f"{name}eh_proj", self.n_embd).reshape(shape[0], n)

    def head(self, g: GraphBuilder, x: Tensor) -> Tensor:
        h = self.last_stream(g, g.get_rows(x, g.output_ids))
        return output_head(g, self.normed(g, h, "output_norm"))

    def normed(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        """Return the input of a block, or of the output matrix: a normalized mixture of the streams."""
        return self.norm(g, x, name)

    def last_stream(self, g: GraphBuilder, x: Tensor) -> Tensor:
        return self.streams.end(g, x)


def read_streams(hparams: HParams, n_embd: int, eps: float, *, iterated: bool = False) -> Streams:
    """Read the settings; ``iterated``: matrices balanced by the file's ``sinkhorn_iterations`` mix the streams."""
    key = "hyper_connection.sinkhorn_iterations"
    n_iterations = hparams.positive(key) if iterated else 0
    if n_iterations > MOST_ITERATIONS:
        raise hparams.wrong(key, f"is {n_iterations}, but must be at most {MOST_ITERATIONS}")
    return Streams(_n_streams(hparams), n_embd, eps, hparams.number("hyper_connection.epsilon"), n_iterations)


def read_gated_streams(hparams: HParams, n_embd: int, eps: float) -> GatedStreams:
    return GatedStreams(_n_streams(hparams), n_embd, eps, 0.0, rank=hparams.positive("hyper_connection.low_rank"))


def _n_streams(hparams: HParams) -> int:
    n = hparams.positive("hyper_connection.count")
    if n > MOST_STREAMS:
        raise hparams.wrong("hyper_connection.count", f"is {n}, but must be at most {MOST_STREAMS}")
    return n
