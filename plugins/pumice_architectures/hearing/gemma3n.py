"""Gemma 3n's encoder of sounds (Google 2025), an earlier form of Gemma 4's conformer."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import N_TOKENS, GraphBuilder, HParams, Tensor, Weight
from pumice.plugin.nn import blocks
from pumice.plugin.unstable import Samples, SoundPiece
from pumice_architectures.hearing.conformer import REACH, Gemma4Conformer, htk_filters
from pumice_architectures.hearing.mel import HOP, WINDOW_FRAMES, Mel, padded_to
from pumice_architectures.hearing.whisper import halved
from pumice_architectures.vision.mobilenet import token_embeddings

FRAME, N_FFT = 512, 1024  # samples of a frame, and of its transform
LOWEST, HIGHEST = 125.0, 7600.0  # hertz of the filters' ends
EMPHASIS = 0.97  # share of the sample before that is taken off each sample
MEL_FLOOR = 1e-5
PADDED_TO = 128  # samples: sounds are completed with zeros to a multiple
KERNEL = 3
GROUP_EPS, EPSILON = 1e-3, 1e-6  # files have 1e-5, which the model was not trained with
REDUCTION = 4  # of the conformer's rows, one is kept
SOUND_ROWS = 188  # rows of each sound of up to 30 seconds, completed with a row of padding
NONE, PADDING, END = range(3)  # tokens in place of a row


class Gemma3nConformer(Gemma4Conformer):
    """Convolutions with cumulative normalization, and a conformer of whose rows every fourth is kept.

    Each sound of up to 30 seconds is 188 rows, and one for its end, whose token has its embedding in the projector.
    """

    around = ("\n\n<start_of_audio>", "\n\n")
    reach = REACH + 1
    key_scale = 1.0
    relative = "linear_pos"
    before_attention, behind_attention = "ln1", "ln2"

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        if self.n_mels % 8:
            raise hparams.wrong("num_mel_bins", f"is {self.n_mels}, expected a multiple of 8")
        self.eps = EPSILON
        self.steps = range(math.ceil(math.log2(halved(WINDOW_FRAMES))))

    def prepare(self, samples: Samples) -> Iterator[str | SoundPiece]:
        window = HOP * WINDOW_FRAMES
        for start in range(0, len(samples), window):
            yield self.around[0]
            yield self._piece(emphasized_mel(samples[start : start + window], self.n_mels))
            yield self.around[1]

    def count_rows(self, n_samples: int) -> int:
        return -(-n_samples // (HOP * WINDOW_FRAMES)) * (SOUND_ROWS + 1)

    def _piece(self, mel: Mel) -> SoundPiece:
        n_times = [len(mel), halved(len(mel)), halved(halved(len(mel)))]
        bordered = np.pad(mel, ((0, KERNEL), (1, 1)))
        views = np.lib.stride_tricks.sliding_window_view(bordered, (KERNEL, KERNEL))[::2, ::2]
        views = views[: n_times[1], : self.bins[1]]
        rows = np.arange(n_times[2], dtype=np.int32)
        inputs: dict[str, NDArray[Any]] = {
            "patches": rows,
            "frames": np.ascontiguousarray(views).reshape(n_times[1], self.bins[1], KERNEL**2),
        }
        for tap in range(KERNEL):
            times = 2 * rows + tap
            inputs[f"conv.{tap}"] = np.minimum(times, n_times[1] - 1).astype(np.int32)
            inputs[f"conv.{tap}.inside"] = (times < n_times[1]).astype(np.float32)[:, None, None]
        for name, n in (("first", n_times[1]), ("second", n_times[2])):
            inputs |= self._sums(name, n)
        kept = rows[::REDUCTION]
        inputs["kept"] = np.pad(kept, (0, SOUND_ROWS + 1 - len(kept)))
        is_kept = np.arange(SOUND_ROWS + 1) < len(kept)
        inputs["is kept"] = is_kept.astype(np.float32)[:, None]
        tokens = np.where(is_kept, NONE, PADDING).astype(np.int32)
        tokens[-1] = END
        inputs["tokens"] = tokens
        return SoundPiece(inputs | self._positions(rows), SOUND_ROWS + 1)

    def _sums(self, name: str, n: int) -> dict[str, NDArray[Any]]:
        """Return the inputs of sums over the first ``n`` times: in step ``i``, rows of ``2**i`` times before."""
        times = np.arange(n, dtype=np.int32)
        inputs: dict[str, NDArray[Any]] = {f"{name}.share": (1 / (times + 1)).astype(np.float32)[:, None]}
        for i in self.steps:
            inputs[f"{name}.{i}"] = np.maximum(times - 2**i, 0).astype(np.int32)
            inputs[f"{name}.{i}.inside"] = (times >= 2**i).astype(np.float32)[:, None]
        return inputs

    # --- the graph

    def build(self, g: GraphBuilder) -> Tensor:
        x = self._convolved(g)
        for i in range(self.n_layer):
            with g.layer(i):
                x = self._norm(g, self._block(g, x, f"a.blk.{i}."), f"a.blk.{i}.layer_pre_norm")
        return self._projected(g, x)

    def _projected(self, g: GraphBuilder, x: Tensor) -> Tensor:
        """Return the kept rows, those of padding and that of the end, in the language model's space."""
        size, n = g.size("n_kept", SOUND_ROWS + 1), self.n_embd
        rows = self._norm(g, g.get_rows(x, g.input("kept", (size,), "i32")), "mm.a.soft_emb_norm")
        tokens = token_embeddings(g, "mm.a.", n, (-1, 0))  # padding and end
        rows = rows * g.input("is kept", (size, 1)) + g.embedding(tokens, g.input("tokens", (size,), "i32"))
        return g.rms_norm(blocks.linear(g, rows, "mm.a.input_projection", self.width), None, self.eps)

    def _convolved(self, g: GraphBuilder) -> Tensor:
        """Return ``[n_tokens, n_embd]``: two convolutions over time and bins, and a linear map of a time's bins.

        Between the two, times are rows: ``[n_times, bins, channels]``.
        """
        kernels = [g.weight(f"a.conv1d.{i}.weight") for i in range(2)]
        n_first, n_second = (int(kernel.shape[0]) for kernel in kernels)
        n_times = g.size("n_times", halved(WINDOW_FRAMES))
        flat = g.derived("a.conv1d.0.flat", (n_first, KERNEL**2), lambda w: w.reshape(n_first, -1), kernels[0])
        x = g.linear(g.input("frames", (n_times, self.bins[1], KERNEL**2)), flat)
        x = self._grouped(g, x, "first", 0)
        products = []
        for tap in range(KERNEL):
            rows = g.get_rows(x, g.input(f"conv.{tap}", (N_TOKENS,), "i32"))
            rows = rows * g.input(f"conv.{tap}.inside", (N_TOKENS, 1, 1))
            products.append(self._over_bins(g, rows, kernels[1], tap))
        x = self._grouped(g, functools.reduce(Tensor.__add__, products), "second", 1)
        return blocks.linear(g, x.reshape(N_TOKENS, self.bins[2] * n_second), "a.pre_encode.out", self.n_embd)

    def _over_bins(self, g: GraphBuilder, x: Tensor, kernel: Any, tap: int) -> Tensor:
        """Return the share of a kernel's ``tap`` in time: of a pair of bins, and of the bin before it."""
        n_out, n_in, half = int(kernel.shape[0]), blocks.width(x), self.bins[2]
        pair = functools.partial(_columns, tap, 1, KERNEL)
        before = functools.partial(_columns, tap, 0, 1)
        pairs = x.reshape(N_TOKENS, half, 2 * n_in)
        product = g.linear(pairs, g.derived(f"a.conv1d.1.pair{tap}", (n_out, 2 * n_in), pair, kernel))
        odd = g.slice(pairs, n_in, 2 * n_in).reshape(N_TOKENS, half * n_in)
        shifted = g.concat(g.slice(odd, 0, n_in) * 0.0, g.slice(odd, 0, (half - 1) * n_in))
        weight = g.derived(f"a.conv1d.1.before{tap}", (n_out, n_in), before, kernel)
        return product + g.linear(shifted.reshape(N_TOKENS, half, n_in), weight)

    def _grouped(self, g: GraphBuilder, x: Tensor, name: str, number: int) -> Tensor:
        """Normalize ``x [n_times, bins, channels]`` by the mean and deviation of all values up to each time."""
        n_times, n_bins, n = x.shape[0], int(x.shape[1]), int(x.shape[2])
        size = n_bins * n
        x = x.reshape(n_times, size)
        x = x + self._mean(g, x, name) * -1.0
        deviation = g.sqrt(g.scale(self._mean(g, x * x, name), 1.0, GROUP_EPS))
        x = (x / deviation).reshape(n_times, n_bins, n)
        return g.relu(x * g.weight(f"a.conv1d.{number}.norm.weight", (n,)))

    def _query_scale(self, g: GraphBuilder, blk: str, d: int) -> Weight:
        name = f"{blk}per_dim_scale"
        return g.derived(f"{name}.positive", (d,), lambda w: np.logaddexp(0, w).astype(np.float32), g.weight(name))

    def _mean(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        """Return ``[n_times, 1]``: the mean of ``x [n_times, n]`` over each time and those before it."""
        n_times, n = x.shape[0], blocks.width(x)
        total = g.sum(x, axis=-1, keepdims=True)
        for i in self.steps:
            before = g.get_rows(total, g.input(f"{name}.{i}", (n_times,), "i32"))
            total = total + before * g.input(f"{name}.{i}.inside", (n_times, 1))
        return total * g.input(f"{name}.share", (n_times, 1)) * (1 / n)


def emphasized_mel(samples: Samples, n_mels: int) -> Mel:
    """Return the log-mel spectrogram ``[n, n_mels]`` of samples, on HTK's scale, of emphasized magnitudes."""
    padded = padded_to(samples, FRAME + 1)
    padded = np.pad(padded, (0, -len(padded) % PADDED_TO)).astype(np.float32)
    views = np.lib.stride_tricks.sliding_window_view(padded, FRAME + 1)[::HOP]
    frames = np.concatenate([views[:, :1] * (1 - EMPHASIS), views[:, 1:-1] - EMPHASIS * views[:, :-2]], 1)
    window = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(FRAME, dtype=np.float32) / FRAME)).astype(np.float32)
    magnitudes = np.abs(np.fft.rfft(frames * window, n=N_FFT))
    return np.log(np.maximum(magnitudes @ htk_filters(n_mels, N_FFT, LOWEST, HIGHEST), MEL_FLOOR)).astype(np.float32)


def _columns(tap: int, start: int, stop: int, kernel: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the matrix of a kernel's taps ``start`` to ``stop`` over bins, at a ``tap`` in time."""
    part = kernel.reshape(*kernel.shape[:2], KERNEL, KERNEL)[:, :, tap, start:stop]
    return np.ascontiguousarray(part.transpose(0, 2, 1).reshape(len(kernel), -1))
