"""Magnitudes and phases of frames to samples: the last step of WavTokenizer (Ji et al. 2024, arXiv:2408.16532)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

RATE = 24_000  # samples a second
HOPS = 4  # frames that overlap at each sample
_LOUDEST = 100.0  # magnitude


def samples_per_frame(width: int) -> int:
    """Return the samples of a frame of ``width`` values; 0 unless these are magnitudes and phases of a spectrum."""
    n_fft = width - 2
    return n_fft // HOPS if n_fft > 0 and n_fft % HOPS == 0 else 0


def waveform(frames: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the samples ``[n * hop]`` of frames ``[n, n_fft + 2]``, from -1 to 1.

    A frame has logarithms of magnitudes, and phases. Its spectrum becomes ``n_fft`` samples under Hann's window, which
    overlap with those of its neighbours; the sum is divided by that of the squared windows.
    """
    n, half = len(frames), frames.shape[1] // 2
    n_fft = frames.shape[1] - 2
    hop = n_fft // HOPS
    values = frames.astype(np.float64)
    magnitudes = np.minimum(np.exp(np.minimum(values[:, :half], np.log(_LOUDEST))), _LOUDEST)
    spectrum = magnitudes * np.exp(1j * values[:, half:])
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(n_fft) / n_fft)
    parts = np.fft.irfft(spectrum, n_fft) * window
    total, weights = np.zeros((n + HOPS - 1, hop)), np.zeros((n + HOPS - 1, hop))
    for i in range(HOPS):
        total[i : i + n] += parts[:, i * hop : (i + 1) * hop]
        weights[i : i + n] += window[i * hop : (i + 1) * hop] ** 2
    border = (n_fft - hop) // 2
    kept = slice(border, border + n * hop)
    samples = total.reshape(-1)[kept] / np.maximum(weights.reshape(-1)[kept], 1e-11)
    return np.clip(samples, -1, 1).astype(np.float32)
