"""The blocks of a conformer (Gulati et al. 2020, arXiv:2005.08100), and the sizes that every conformer has."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import N_TOKENS, GraphBuilder, HParams, Tensor
from pumice.plugin.nn import blocks
from pumice.plugin.unstable import AudioEncoder

MOST_BINS = 256


class ConformerSizes(NamedTuple):
    """Width, heads, epsilon of norms, and bins of the spectrogram."""

    n_embd: int
    n_head: int
    eps: float
    n_mels: int


def conformer_sizes(hparams: HParams) -> ConformerSizes:
    """Return the sizes of a file. Raises ModelError for heads that do not divide the width, and for too many bins."""
    n_embd, n_head = hparams.positive("embedding_length"), hparams.positive("attention.head_count")
    eps, n_mels = hparams.number("attention.layer_norm_epsilon"), hparams.positive("num_mel_bins", MOST_BINS)
    if n_embd % (2 * n_head):
        raise hparams.wrong("attention.head_count", f"is {n_head}, which does not divide {n_embd}")
    return ConformerSizes(n_embd, n_head, eps, n_mels)


class Around:
    """The rows that a convolution of ``n_taps`` rows sees, the row in its middle."""

    def __init__(self, n_taps: int) -> None:
        self._distances = range(-(n_taps // 2), n_taps - n_taps // 2)

    def inputs(self, n: int, n_valid: int) -> dict[str, NDArray[Any]]:
        """Return the inputs for ``n`` rows, of which those from ``n_valid`` on count as zero."""
        rows = np.arange(n, dtype=np.int32)
        inputs: dict[str, NDArray[Any]] = {}
        for distance in self._distances:
            near = rows + np.int32(distance)
            inputs[f"at {distance}"] = np.clip(near, 0, n - 1).astype(np.int32)
            inputs[f"has {distance}"] = ((near >= 0) & (near < n_valid)).astype(np.float32)[:, None]
        return inputs

    def convolved(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        """Apply the kernel ``{name}.weight``, and its bias if there is one, to each channel."""
        n, total = blocks.width(x), []
        kernel = g.weight(f"{name}.weight", (n, len(self._distances)))
        for i, distance in enumerate(self._distances):
            weight = g.derived(f"{name}.tap{i}", (n,), functools.partial(_column, n, i), kernel)
            rows = g.get_rows(x, g.input(f"at {distance}", (N_TOKENS,), "i32"))
            total.append(rows * g.input(f"has {distance}", (N_TOKENS, 1)) * weight)
        y, bias = functools.reduce(Tensor.__add__, total), g.find_weight(f"{name}.bias", (n,))
        return y + bias if bias else y


class Conformer(AudioEncoder):
    """Blocks of attention and a convolution of each channel, between the halves of two feed-forwards."""

    n_embd: int
    eps: float
    around: Around

    def block(self, g: GraphBuilder, x: Tensor, blk: str) -> Tensor:
        """Return rows after the block whose tensors' names begin with ``blk``."""
        x = x + self._feed_forward(g, x, blk, "") * 0.5
        x = x + self.attention(g, self.norm(g, x, f"{blk}ln1"), blk)
        x = x + self._convolution(g, self.norm(g, x, f"{blk}norm_conv"), blk)
        x = x + self._feed_forward(g, x, blk, "_1") * 0.5
        return self.norm(g, x, f"{blk}ln2")

    def attention(self, g: GraphBuilder, x: Tensor, blk: str) -> Tensor:
        raise NotImplementedError

    def norm(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        return blocks.layer_norm(g, x, name, self.eps)

    def _feed_forward(self, g: GraphBuilder, x: Tensor, blk: str, number: str) -> Tensor:
        y = g.silu(blocks.linear(g, self.norm(g, x, f"{blk}ffn_norm{number}"), f"{blk}ffn_up{number}"))
        return blocks.linear(g, y, f"{blk}ffn_down{number}", self.n_embd)

    def _convolution(self, g: GraphBuilder, x: Tensor, blk: str) -> Tensor:
        """Return a gate, a convolution of each channel, normalization, and a linear map."""
        y = blocks.linear(g, x, f"{blk}conv_pw1")
        n = blocks.width(y) // 2
        y = g.slice(y, 0, n) * g.sigmoid(g.slice(y, n, 2 * n))
        y = g.silu(self.batch_normed(g, self.around.convolved(g, y, f"{blk}conv_dw"), f"{blk}conv_norm"))
        return blocks.linear(g, y, f"{blk}conv_pw2", self.n_embd)

    def batch_normed(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        """Apply the batch normalization, which the file has as factors and summands."""
        n = blocks.width(x)
        return x * g.weight(f"{name}.weight", (n,)) + g.weight(f"{name}.bias", (n,))


def _column(n: int, number: int, kernel: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.ascontiguousarray(kernel.reshape(n, -1)[:, number])
