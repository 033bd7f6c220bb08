"""Convolutions that halve times and bins in front of a conformer, and the sizes that every conformer has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import HParams

TAPS = 9  # of a kernel of 3 x 3
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


def taps_of(name: str, times: Sequence[int], bins: Sequence[int]) -> dict[str, NDArray[Any]]:
    """Return the inputs of a convolution: the rows under each tap of its kernel, and whether there is one.

    Args:
        name: beginning of the inputs' names.
        times: times before and after the convolution.
        bins: bins before and after it.
    """
    time, bin = np.indices((times[1], bins[1]), np.int32).reshape(2, -1)
    inputs: dict[str, NDArray[Any]] = {}
    for tap in range(TAPS):
        t, f = 2 * time - 1 + tap // 3, 2 * bin - 1 + tap % 3
        is_inside = (t >= 0) & (t < times[0]) & (f >= 0) & (f < bins[0])
        inputs[f"{name}.{tap}"] = np.where(is_inside, t * bins[0] + f, 0).astype(np.int32)
        inputs[f"{name}.{tap}.inside"] = is_inside.astype(np.float32)[:, None]
    return inputs
