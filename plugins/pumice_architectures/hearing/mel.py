"""Log-mel spectrograms as Whisper's (Radford et al. 2022, arXiv:2212.04356)."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from pumice.plugin.unstable import Samples

RATE = 16_000  # samples a second
HOP = 160  # samples between frames
WINDOW = 400  # samples of a frame
WINDOW_FRAMES = 3000  # of the 30 seconds that Whisper hears at once
_BLOCK = 1 << 10  # frames that are transformed at once
_LEAST_POWER = np.float32(1e-10)

Mel = NDArray[np.float32]


def log_mel(samples: Samples, n_mels: int) -> Mel:
    """Return the log-mel spectrogram ``[n // HOP, n_mels]`` of samples, each a value from -1 to 1.

    A frame is the power spectrum of ``WINDOW`` samples around it under Hann's window; the ends are mirrored. The
    logarithm reaches 8 decades below the loudest value, and is scaled as ``(x + 4) / 4``.
    """
    n = len(samples) // HOP
    padded = np.pad(samples, WINDOW // 2, "reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::HOP][:n]
    heard = np.flatnonzero(padded)
    end = min(n, int(heard[-1]) // HOP + 1) if len(heard) else 0  # only zeros are in the frames from here on
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)
    filters = mel_filters(n_mels, RATE, WINDOW).astype(np.float32)
    mel = np.full((n, n_mels), np.log10(_LEAST_POWER), np.float32)
    for i in range(0, end, _BLOCK):
        waves = np.fft.rfft(frames[i : min(i + _BLOCK, end)] * window)
        power = (waves.real**2 + waves.imag**2).astype(np.float32)
        energy = np.einsum("fb,bm->fm", power, filters)  # a product this small would only wake the threads of BLAS
        mel[i : i + len(power)] = np.log10(np.maximum(energy, _LEAST_POWER))
    return (np.maximum(mel, mel.max() - np.float32(8)) + np.float32(4)) / np.float32(4)


@functools.cache
def mel_filters(n_mels: int, rate: int, n_fft: int) -> NDArray[np.float64]:
    """Return the triangles ``[n_fft // 2 + 1, n_mels]`` of Slaney's mel scale, each of the same area.

    The scale is linear up to 1,000 Hz, and logarithmic above (Slaney 1998, Auditory Toolbox).
    """
    top = 15 + 27 * np.log(rate / 2000) / np.log(6.4)
    mels = np.linspace(0, top, n_mels + 2)
    hertz = np.where(mels < 15, mels * 200 / 3, 1000 * np.exp(np.log(6.4) / 27 * (mels - 15)))
    bins = np.arange(n_fft // 2 + 1)[:, None] * (rate / n_fft)
    low, middle, high = hertz[:-2], hertz[1:-1], hertz[2:]
    rising, falling = (bins - low) / (middle - low), (high - bins) / (high - middle)
    triangles = np.maximum(0, np.minimum(rising, falling))
    return triangles * 2 / (high - low)


def padded_to(samples: Samples, n: int) -> Samples:
    """Return samples with zeros behind them, ``n`` or more together."""
    return np.pad(samples, (0, max(0, n - len(samples))))
