"""FastConformer (Rekesh et al. 2023, arXiv:2305.05084): the encoders of LFM2-Audio and Parakeet."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import N_TOKENS, GraphBuilder, HParams, Tensor
from pumice.plugin.nn import blocks
from pumice.plugin.unstable import Samples, SoundPiece
from pumice_architectures.hearing.bins import TAPS, first_convolved, joined_bins
from pumice_architectures.hearing.conformer_block import Around, Conformer, conformer_sizes
from pumice_architectures.hearing.mel import HOP, RATE, WINDOW, WINDOW_FRAMES, Mel, mel_filters
from pumice_architectures.hearing.whisper import halved
from pumice_architectures.vision.convolution import depthwise, row, tap_inputs

N_FFT = 512
EMPHASIS = np.float32(0.97)  # share of the sample before that is taken off each sample
LEAST_POWER, LEAST_DEVIATION = 2**-24, 1e-5
STAGES = 3  # convolutions that halve frames and bins
MOST_TAPS = 255
NORM_EPS, PROJECTED_EPS = 1e-5, 1e-6
N_TAPS = 9  # rows that the convolution of a block sees
LANES = 16  # the size of heads is a multiple of it
SHORTEST = 2 * HOP  # samples; shorter sounds are padded


class FastConformer(Conformer):
    """Three convolutions make a row of 8 frames; blocks attend to all rows, with a score for each distance."""

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.n_embd, self.n_head, self.eps, self.n_mels = conformer_sizes(hparams)
        self.around = Around(self.taps())
        self.bins, self.times = [self.n_mels], [WINDOW_FRAMES]
        for _ in range(STAGES):
            self.bins.append(halved(self.bins[-1]))
            self.times.append(halved(self.times[-1]))
        self.n_rows = self.times[-1]
        self.places = self.n_rows + -self.n_rows % LANES

    def taps(self) -> int:
        """Return the rows that the convolution of a block sees."""
        return N_TAPS

    def prepare(self, samples: Samples) -> Iterator[str | SoundPiece]:
        mel = normalized_mel(samples, self.n_mels)
        for start in range(0, len(mel), WINDOW_FRAMES):
            yield self._piece(mel[start : start + WINDOW_FRAMES])

    def count_rows(self, n_samples: int) -> int:
        whole, rest = divmod(max(n_samples, SHORTEST) // HOP, WINDOW_FRAMES)
        return whole * self.n_rows + halved(halved(halved(rest)))

    def _piece(self, mel: Mel) -> SoundPiece:
        times = [len(mel)]
        for _ in range(STAGES):
            times.append(halved(times[-1]))
        views = np.lib.stride_tricks.sliding_window_view(np.pad(mel, 1), (3, 3))[::2, ::2]
        inputs: dict[str, NDArray[Any]] = {"frames": np.ascontiguousarray(views).reshape(-1, TAPS)}
        for stage in (2, 3):
            inputs |= tap_inputs(f"conv{stage}", (times[stage - 1], self.bins[stage - 1]), 3, 2)
        rows = np.arange(times[-1], dtype=np.int32)
        inputs |= {f"bin.{f}": rows * np.int32(self.bins[-1]) + np.int32(f) for f in range(self.bins[-1])}
        distances = rows[:, None] - np.arange(self.n_rows, dtype=np.int32) + np.int32(self.n_rows - 1)
        inputs["distances"] = np.ascontiguousarray(np.repeat(distances[:, None], self.n_head, 1))
        inputs["places"] = (rows[:, None, None] == np.arange(self.places)).astype(np.float32)
        inputs["zeros"] = np.zeros((len(rows), 1, max(self.places - self.n_rows, 1)), np.float32)
        inputs |= self.around.inputs(len(rows), len(rows))
        return SoundPiece({"patches": rows, **inputs}, len(rows))

    def build(self, g: GraphBuilder) -> Tensor:
        x = self._convolved(g)
        for i in range(self.n_layer):
            with g.layer(i):
                x = self.block(g, x, f"a.blk.{i}.")
        return self.projected(g, x)

    def projected(self, g: GraphBuilder, x: Tensor) -> Tensor:
        """Return rows of the language model's width."""
        x = self.norm(g, x, "mm.a.mlp.0")
        return blocks.linear(g, g.gelu_erf(blocks.linear(g, x, "mm.a.mlp.1")), "mm.a.mlp.3", self.width)

    def _convolved(self, g: GraphBuilder) -> Tensor:
        """Return ``[n_tokens, n_embd]``: the convolutions, and a linear map of a time's channels and bins."""
        x = first_convolved(g, "a.conv1d.0", g.size("n_conv1", self.times[1] * self.bins[1]))
        n = blocks.width(x)
        x = g.relu(x + row(g, "a.conv1d.0.bias", n))
        for stage, by_channel, joining in ((2, "a.conv1d.2", "a.conv1d.3"), (3, "a.conv1d.5", "a.conv1d.6")):
            size = g.size(f"n_conv{stage}", self.times[stage] * self.bins[stage])
            x = depthwise(g, x, f"conv{stage}", by_channel, size)
            x = g.relu(g.linear(x, g.weight(f"{joining}.weight", (n, n))) + row(g, f"{joining}.bias", n))
        y = joined_bins(g, x, "a.pre_encode.out", self.n_embd, self.bins[-1], by_channel=True)
        return y + g.weight("a.pre_encode.out.bias", (self.n_embd,))

    def attention(self, g: GraphBuilder, x: Tensor, blk: str) -> Tensor:
        """Attend to all rows, with scores of distances (Dai et al. 2019, arXiv:1901.02860).

        A key has a 1 at its place, where a query has its score for the distance of that key.
        """
        n_head, n, d = self.n_head, self.n_embd, self.n_embd // self.n_head
        q, k, v = (blocks.linear(g, x, blk + name, n).reshape(N_TOKENS, n_head, d) for name in blocks.QKV)
        u, by_distance = (g.weight(f"{blk}pos_bias_{name}", (n_head, d)) for name in "uv")
        n_distances = 2 * self.n_rows - 1
        relative = functools.partial(_relative, n_head, self.n_rows)
        matrix = g.weight(f"{blk}linear_pos.weight", (n, n))
        table = g.derived(f"{blk}linear_pos.rows", (n_head, n_distances, d), relative, matrix)
        scores = g.gather(
            g.batched_linear(q + by_distance, table), g.input("distances", (N_TOKENS, n_head, self.n_rows), "i32")
        )
        q = g.concat(q + u, scores)
        if self.places > self.n_rows:
            q = g.concat(q, g.input("zeros", (N_TOKENS, 1, self.places - self.n_rows)))
        k = g.concat(k, g.input("places", (N_TOKENS, 1, self.places)))
        y = g.attention(q, k, v, scale=d**-0.5, causal=False, cache=False)
        return blocks.linear(g, y.reshape(N_TOKENS, n), f"{blk}attn_out", n)


class Parakeet(FastConformer):
    """The encoder of Nemotron Nano Omni (NVIDIA 2026)."""

    def taps(self) -> int:
        n_taps, factor = self.hparams.positive("conv_kernel_size"), self.hparams.positive("subsampling_factor")
        if n_taps > MOST_TAPS or not n_taps % 2:
            raise self.hparams.wrong("conv_kernel_size", f"is {n_taps}, expected an odd number up to {MOST_TAPS}")
        if factor != 2**STAGES:
            raise self.hparams.wrong("subsampling_factor", f"is {factor}, expected {2**STAGES}")
        return n_taps

    def batch_normed(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        shape = (blocks.width(x),)
        stored = [g.weight(f"{name}{part}", shape) for part in (".weight", ".bias", "_mean", "_var")]
        factor = g.derived(f"{name}.factor", shape, lambda w, b, mean, var: w / np.sqrt(var + NORM_EPS), *stored)
        summand = g.derived(
            f"{name}.summand", shape, lambda w, b, mean, var: b - mean * w / np.sqrt(var + NORM_EPS), *stored
        )
        return x * factor + summand

    def projected(self, g: GraphBuilder, x: Tensor) -> Tensor:
        x = blocks.rms_norm(g, x, "mm.a.norm_pre", PROJECTED_EPS)
        return blocks.linear(g, g.relu_squared(blocks.linear(g, x, "mm.a.mlp.1")), "mm.a.mlp.2", self.width)


def normalized_mel(samples: Samples, n_mels: int) -> Mel:
    """Return the log-mel spectrogram ``[n // HOP, n_mels]`` of samples, each bin with mean 0 and deviation 1."""
    samples = np.pad(samples, (0, max(0, SHORTEST - len(samples)))).astype(np.float32)
    n = len(samples) // HOP
    emphasized = np.concatenate([samples[:1], samples[1:] - EMPHASIS * samples[:-1]])
    frames = np.lib.stride_tricks.sliding_window_view(np.pad(emphasized, N_FFT // 2), N_FFT)[::HOP][:n]
    window = np.zeros(N_FFT)
    start = (N_FFT - WINDOW) // 2
    window[start : start + WINDOW] = np.hanning(WINDOW)
    mel = np.log((np.abs(np.fft.rfft(frames * window)) ** 2) @ mel_filters(n_mels, RATE, N_FFT) + LEAST_POWER)
    return ((mel - mel.mean(0)) / (mel.std(0, ddof=1) + LEAST_DEVIATION)).astype(np.float32)


def _relative(n_head: int, n_rows: int, matrix: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return rows ``[n_head, 2 * n_rows - 1, d]`` of the distances ``1 - n_rows`` and on, of sines and cosines."""
    n = matrix.shape[1]
    angles = np.arange(1 - n_rows, n_rows)[:, None] * 10_000 ** (-np.arange(0, n, 2) / n)
    waves = np.stack([np.sin(angles), np.cos(angles)], -1).reshape(-1, n)
    rows = (waves @ matrix.T.astype(np.float64)).reshape(len(waves), n_head, -1)
    return np.ascontiguousarray(rows.transpose(1, 0, 2), np.float32)
