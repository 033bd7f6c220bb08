"""The sizes that every conformer has."""

from __future__ import annotations

from typing import NamedTuple

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
