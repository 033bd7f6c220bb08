"""The audio encoder of Qwen3-ASR and Qwen3-Omni (Xu et al. 2025, arXiv:2509.17765)."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import N_TOKENS, GraphBuilder, HParams, Samples, SoundPiece, Tensor
from pumice_architectures.hearing.mel import HOP, Mel, log_mel, padded_to
from pumice_architectures.hearing.whisper import Whisper, halved
from pumice_architectures.vision.vit import gelu_erf

CHUNK = 100  # frames that the convolutions see together
CHUNKS = 8  # of a window, whose rows attend to each other
SHORTEST = 8000  # samples; shorter sounds are padded
TAPS = 9  # of a kernel of 3 x 3


class Qwen3Audio(Whisper):
    """Three convolutions over time and frequency of each second, and a transformer over windows of 8 seconds.

    A second becomes 13 rows; the last, shorter one as many as its frames need.
    """

    before, after = "<|audio_start|>", "<|audio_end|>"

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.times, self.bins = [CHUNK], [self.n_mels]
        for _ in range(3):
            self.times.append(halved(self.times[-1]))
            self.bins.append(halved(self.bins[-1]))
        self.n_rows = CHUNKS * self.times[-1]

    def pieces(self, samples: Samples) -> Iterator[SoundPiece]:
        mel = log_mel(padded_to(samples, SHORTEST), self.n_mels)
        for start in range(0, len(mel), CHUNK * CHUNKS):
            yield self._window(mel[start : start + CHUNK * CHUNKS])

    def count_rows(self, n_samples: int) -> int:
        n_chunks, last = divmod(max(n_samples, SHORTEST) // HOP, CHUNK)
        return n_chunks * self.times[-1] + halved(halved(halved(last)))

    def _window(self, mel: Mel) -> SoundPiece:
        n_frames = len(mel)
        n_chunks = -(-n_frames // CHUNK)
        padded = np.pad(mel, ((0, n_chunks * CHUNK - n_frames), (0, 0))).reshape(n_chunks, CHUNK, self.n_mels)
        bordered = np.pad(padded, ((0, 0), (1, 1), (1, 1)))
        views = np.lib.stride_tricks.sliding_window_view(bordered, (3, 3), (1, 2))[:, ::2, ::2]
        inputs: dict[str, NDArray[Any]] = {"frames": np.ascontiguousarray(views.swapaxes(-1, -2)).reshape(-1, TAPS)}
        for number in (2, 3):
            inputs |= self._neighbours(number, n_chunks)
        last = n_frames - (n_chunks - 1) * CHUNK
        n_rows = (n_chunks - 1) * self.times[-1] + halved(halved(halved(last)))
        rows = np.arange(n_rows, dtype=np.int32)
        inputs |= {f"bin.{f}": rows * self.bins[-1] + np.int32(f) for f in range(self.bins[-1])}
        return SoundPiece({"patches": rows % np.int32(self.times[-1]), **inputs}, n_rows)

    def _neighbours(self, number: int, n_chunks: int) -> dict[str, NDArray[Any]]:
        """Return the inputs of a convolution: the rows under each tap of its kernel, and whether there is one."""
        n_times, n_bins = self.times[number - 1], self.bins[number - 1]
        chunk, time, bin = np.indices((n_chunks, self.times[number], self.bins[number]), np.int32).reshape(3, -1)
        inputs: dict[str, NDArray[Any]] = {}
        for tap in range(TAPS):
            f, t = 2 * bin - 1 + tap // 3, 2 * time - 1 + tap % 3
            is_inside = (f >= 0) & (f < n_bins) & (t >= 0) & (t < n_times)
            ids = (chunk * n_times + t) * n_bins + f
            inputs[f"conv{number}.{tap}"] = np.where(is_inside, ids, 0).astype(np.int32)
            inputs[f"conv{number}.{tap}.inside"] = is_inside.astype(np.float32)[:, None]
        return inputs

    def build(self, g: GraphBuilder) -> Tensor:
        n_channels = int(g.weight("a.conv2d.1.weight").shape[0])
        frames = g.input("frames", (g.size("n_conv1", CHUNKS * self.times[1] * self.bins[1]), TAPS))
        kernel = g.weight("a.conv2d.1.weight", (n_channels, 1, 3, 3))
        flat = g.derived("a.conv2d.1.flat", (n_channels, TAPS), lambda w: w.reshape(len(w), -1), kernel)
        x = gelu_erf(g, g.linear(frames, flat) + self._bias(g, 1, n_channels))
        x = self._convolved_again(g, x, 2, n_channels)
        x = self._convolved_again(g, x, 3, n_channels)
        x = self._joined_bins(g, x, n_channels)
        positions = g.weight("a.position_embd.weight")
        x = self.transformed(g, x + g.embedding(positions, g.input("patches", (N_TOKENS,), "i32")))
        return self.projected(g, self.norm(g, x, "a.post_ln"), "mm.a.mlp.1", "mm.a.mlp.2")

    def _bias(self, g: GraphBuilder, number: int, n_channels: int) -> Any:
        stored = g.weight(f"a.conv2d.{number}.bias")
        return g.derived(f"a.conv2d.{number}.row", (n_channels,), lambda b: b.reshape(-1), stored)

    def _convolved_again(self, g: GraphBuilder, x: Tensor, number: int, n_channels: int) -> Tensor:
        """Return the result of a convolution as the sum of its taps' products."""
        size = g.size(f"n_conv{number}", CHUNKS * self.times[number] * self.bins[number])
        kernel = g.weight(f"a.conv2d.{number}.weight", (n_channels, n_channels, 3, 3))
        products = []
        for tap in range(TAPS):
            matrix = functools.partial(_tap, tap)
            weight = g.derived(f"a.conv2d.{number}.tap{tap}", (n_channels, n_channels), matrix, kernel)
            rows = g.get_rows(x, g.input(f"conv{number}.{tap}", (size,), "i32"))
            products.append(g.linear(rows * g.input(f"conv{number}.{tap}.inside", (size, 1)), weight))
        return gelu_erf(g, functools.reduce(Tensor.__add__, products) + self._bias(g, number, n_channels))

    def _joined_bins(self, g: GraphBuilder, x: Tensor, n_channels: int) -> Tensor:
        """Return ``[n_tokens, n_embd]``: the linear map of a time's frequencies, as the sum of a product for each."""
        stored = g.weight("a.conv_out.weight", (self.n_embd, n_channels * self.bins[-1]))
        products = []
        for f in range(self.bins[-1]):
            columns = functools.partial(_every, f, self.bins[-1])
            weight = g.derived(f"a.conv_out.bin{f}", (self.n_embd, n_channels), columns, stored)
            products.append(g.linear(g.get_rows(x, g.input(f"bin.{f}", (N_TOKENS,), "i32")), weight))
        return functools.reduce(Tensor.__add__, products)


def _tap(number: int, kernel: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the matrix of one tap of a kernel ``[out, in, 3, 3]``."""
    return np.ascontiguousarray(kernel[:, :, number // 3, number % 3])


def _every(start: int, step: int, matrix: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return every ``step``-th column."""
    return np.ascontiguousarray(matrix[:, start::step])
