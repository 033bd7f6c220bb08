"""Gemma 4's conformer (Google 2026), after the Universal Speech Model (Zhang et al. 2023, arXiv:2303.01037)."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import N_TOKENS, GraphBuilder, HParams, Tensor, Weight
from pumice.plugin.nn import blocks
from pumice.plugin.unstable import AudioEncoder, Samples, SoundPiece
from pumice_architectures.hearing.bins import TAPS, first_convolved, joined_bins
from pumice_architectures.hearing.conformer_block import conformer_sizes
from pumice_architectures.hearing.mel import HOP, RATE, WINDOW_FRAMES, Mel, padded_to
from pumice_architectures.hearing.whisper import halved
from pumice_architectures.vision.convolution import summed, tap_inputs
from pumice_architectures.vision.gemma4 import clamped_linear

FRAME, N_FFT = 320, 512  # samples of a frame, and of its transform
MEL_FLOOR = 1e-3
N_MELS = 128
REACH = 12  # rows to which a row attends: its own and those before it
LANES = 16  # the size of heads is a multiple of it
SOFTCAP = 50.0
N_PAST = 5  # rows of the convolution of a block


class Gemma4Conformer(AudioEncoder):
    """Two convolutions that quarter frames and bins, and blocks of attention to the latest rows and convolution."""

    around = ("<|audio>", "<audio|>")
    reach = REACH
    key_scale = math.log(1 + math.e) / math.log(2)
    relative = "attn_k_rel"  # tensor by which sines and cosines of distances are multiplied
    before_attention, behind_attention = "attn_pre_norm", "attn_post_norm"

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.n_embd, self.n_head, self.eps, self.n_mels = conformer_sizes(hparams)
        self.bins = [self.n_mels, halved(self.n_mels), halved(halved(self.n_mels))]
        self.n_rows = halved(halved(WINDOW_FRAMES))
        self.padded = -self.reach % LANES

    def prepare(self, samples: Samples) -> Iterator[str | SoundPiece]:
        yield self.around[0]
        window = HOP * WINDOW_FRAMES
        for start in range(0, len(samples), window):
            yield self._piece(usm_mel(samples[start : start + window], self.n_mels))
        yield self.around[1]

    def count_rows(self, n_samples: int) -> int:
        whole, rest = divmod(n_samples, HOP * WINDOW_FRAMES)
        lengths = [HOP * WINDOW_FRAMES] * whole + ([rest] if rest else [])
        return sum(halved(halved(n_frames(n))) for n in lengths)

    def _piece(self, mel: Mel) -> SoundPiece:
        n_times = [len(mel), halved(len(mel)), halved(halved(len(mel)))]
        bordered = np.pad(mel, 1 + np.zeros((2, 2), int))
        views = np.lib.stride_tricks.sliding_window_view(bordered, (3, 3))[::2, ::2][: n_times[1], : self.bins[1]]
        inputs: dict[str, NDArray[Any]] = {"frames": np.ascontiguousarray(views).reshape(-1, TAPS)}
        inputs |= tap_inputs("conv", (n_times[1], self.bins[1]), 3, 2)
        rows = np.arange(n_times[2], dtype=np.int32)
        inputs |= {f"bin.{f}": rows * np.int32(self.bins[2]) + np.int32(f) for f in range(self.bins[2])}
        inputs |= self._positions(rows)
        return SoundPiece({"patches": rows, **inputs}, len(rows))

    def _positions(self, rows: NDArray[np.int32]) -> dict[str, NDArray[Any]]:
        """Return the inputs for relative positions, and for rows before others.

        Key ``j`` has a 1 at ``j % reach``, where a query has its score for the distance of that key: within reach, each
        key has another place.
        """
        places = np.arange(self.reach, dtype=np.int32)
        distances = (rows[:, None] - places) % self.reach
        n = len(rows)
        inputs: dict[str, NDArray[Any]] = {
            "distances": np.ascontiguousarray(np.repeat(distances[:, None], self.n_head, 1), np.int32),
            "places": (rows[:, None, None] % self.reach == np.arange(self.reach + self.padded)).astype(np.float32),
            "none": np.zeros((n, 1, self.padded), np.float32),
        }
        for i in range(1, N_PAST):
            inputs[f"before.{i}"] = np.maximum(rows - i, 0)
            inputs[f"has_before.{i}"] = (rows >= i).astype(np.float32)[:, None]
        return inputs

    def build(self, g: GraphBuilder) -> Tensor:
        x = self._convolved(g)
        for i in range(self.n_layer):
            with g.layer(i):
                x = self._norm(g, self._block(g, x, f"a.blk.{i}."), f"a.blk.{i}.ln2")
        out = g.weight("a.pre_encode.out.weight")
        x = blocks.linear(g, x, "a.pre_encode.out", int(out.shape[0]))
        return blocks.linear(g, g.rms_norm(x, None, self.eps), "mm.a.input_projection", self.width)

    def _block(self, g: GraphBuilder, x: Tensor, blk: str) -> Tensor:
        x = self._feed_forward(g, x, blk, "")
        y = self._attention(g, self._norm(g, x, blk + self.before_attention), blk)
        x = x + self._norm(g, y, blk + self.behind_attention)
        x = x + self._convolution(g, x, blk)
        return self._feed_forward(g, x, blk, "_1")

    def _norm(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        return blocks.rms_norm(g, x, name, self.eps)

    def _convolved(self, g: GraphBuilder) -> Tensor:
        """Return ``[n_tokens, n_embd]``: two convolutions over time and bins, and a linear map of a time's bins."""
        x = first_convolved(g, "a.conv1d.0", g.size("n_conv1", halved(WINDOW_FRAMES) * self.bins[1]))
        x = self._channels(g, x, 0)
        x = summed(g, x, "conv", "a.conv1d.1", g.size("n_conv2", self.n_rows * self.bins[2]))
        x = self._channels(g, x, 1)
        return joined_bins(g, x, "a.input_projection", self.n_embd, self.bins[2], by_channel=False)

    def _channels(self, g: GraphBuilder, x: Tensor, number: int) -> Tensor:
        return g.relu(g.layer_norm(x, g.weight(f"a.conv1d.{number}.norm.weight"), None, self.eps))

    def _feed_forward(self, g: GraphBuilder, x: Tensor, blk: str, number: str) -> Tensor:
        n_ff = int(g.weight(f"{blk}ffn_up{number}.weight").shape[0])
        y = self._norm(g, x, f"{blk}ffn_norm{number}")
        y = clamped_linear(
            g, g.silu(clamped_linear(g, y, f"{blk}ffn_up{number}", n_ff)), f"{blk}ffn_down{number}", self.n_embd
        )
        return x + self._norm(g, y, f"{blk}ffn_post_norm{number}") * 0.5

    def _attention(self, g: GraphBuilder, x: Tensor, blk: str) -> Tensor:
        n_head, d = self.n_head, self.n_embd // self.n_head
        q, k, v = (
            clamped_linear(g, x, blk + name, self.n_embd).reshape(N_TOKENS, n_head, d)
            for name in ("attn_q", "attn_k", "attn_v")
        )
        q = q * self._query_scale(g, blk, d) * (d**-0.5 / math.log(2))
        k = k * self.key_scale
        relative = functools.partial(_relative, n_head, self.reach)
        matrix = g.weight(f"{blk}{self.relative}.weight")
        table = g.derived(f"{blk}{self.relative}.rows", (n_head, self.reach, d), relative, matrix)
        scores = g.gather(g.batched_linear(q, table), g.input("distances", (N_TOKENS, n_head, self.reach), "i32"))
        zeros = g.input("none", (N_TOKENS, 1, self.padded))
        q = g.concat(g.concat(q, scores), zeros)
        k = g.concat(k, g.input("places", (N_TOKENS, 1, self.reach + self.padded)))
        y = g.attention(q, k, v, scale=1.0, softcap=SOFTCAP, window=self.reach, cache=False)
        return clamped_linear(g, y.reshape(N_TOKENS, self.n_embd), f"{blk}attn_out", self.n_embd)

    def _query_scale(self, g: GraphBuilder, blk: str, d: int) -> Weight:
        """Return the positive factors of a query's values."""
        return g.weight(f"{blk}per_dim_scale.weight", (d,))

    def _convolution(self, g: GraphBuilder, x: Tensor, blk: str) -> Tensor:
        """Return a gate, a convolution of each channel over the latest rows, and a linear map."""
        n = self.n_embd
        y = clamped_linear(g, self._norm(g, x, f"{blk}conv_norm"), f"{blk}conv_pw1", 2 * n)
        y = g.slice(y, 0, n) * g.sigmoid(g.slice(y, n, 2 * n))
        kernel = g.weight(f"{blk}conv_dw.weight", (n, N_PAST))
        taps = [
            g.derived(f"{blk}conv_dw.tap{i}", (n,), functools.partial(_column, -1 - i), kernel) for i in range(N_PAST)
        ]
        total = y * taps[0]
        for i in range(1, N_PAST):
            before = g.get_rows(y, g.input(f"before.{i}", (N_TOKENS,), "i32"))
            total = total + before * g.input(f"has_before.{i}", (N_TOKENS, 1)) * taps[i]
        y = g.silu(self._norm(g, total, f"{blk}norm_conv"))
        return clamped_linear(g, y, f"{blk}conv_pw2", n)


def n_frames(n_samples: int) -> int:
    """Return the frames of a sound that are in it whole, at least one."""
    return max((n_samples - 1) // HOP, 1)


def usm_mel(samples: Samples, n_mels: int) -> Mel:
    """Return the log-mel spectrogram ``[n_frames(n), n_mels]`` of samples, on HTK's scale, of magnitudes."""
    n = n_frames(len(samples))
    padded = np.pad(padded_to(samples, 2 * HOP), (FRAME // 2, HOP)).astype(np.float32)
    frames = np.lib.stride_tricks.sliding_window_view(padded, FRAME)[::HOP][:n]
    window = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(FRAME) / FRAME)).astype(np.float32)
    magnitudes = np.abs(np.fft.rfft(frames * window, n=N_FFT))
    return np.log(magnitudes @ htk_filters(n_mels, N_FFT) + MEL_FLOOR).astype(np.float32)


@functools.cache
def htk_filters(
    n_mels: int, n_fft: int, lowest: float = 0.0, highest: float = RATE / 2, rate: int = RATE
) -> NDArray[np.float64]:
    """Return triangles ``[n_fft // 2 + 1, n_mels]`` of height 1 on the mel scale of HTK (Young et al. 2006).

    ``lowest``, ``highest``: hertz where the first one begins and the last one ends.
    """
    first, last = (2595 * math.log10(1 + hertz / 700) for hertz in (lowest, highest))
    hertz = 700 * (10 ** (np.linspace(first, last, n_mels + 2) / 2595) - 1)
    bins = np.linspace(0, rate // 2, n_fft // 2 + 1)[:, None]
    low, middle, high = hertz[:-2], hertz[1:-1], hertz[2:]
    triangles: NDArray[np.float64] = np.maximum(
        0, np.minimum((bins - low) / (middle - low), (high - bins) / (high - middle))
    )
    return triangles


def _relative(n_head: int, reach: int, matrix: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return rows ``[n_head, reach, d]`` that queries are multiplied by for each distance, of sines and cosines."""
    n = matrix.shape[1] // 2
    speeds = np.exp(np.arange(n) * -(math.log(10000) / max(n - 1, 1)))
    angles = np.arange(reach)[:, None] * speeds
    rows = np.concatenate([np.sin(angles), np.cos(angles)], 1) @ matrix.T.astype(np.float64)
    return np.ascontiguousarray(rows.reshape(reach, n_head, -1).transpose(1, 0, 2), np.float32)


def _column(number: int, matrix: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.ascontiguousarray(matrix[:, number])
