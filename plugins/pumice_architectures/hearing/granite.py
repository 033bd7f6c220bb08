"""Granite Speech (IBM 2025, arXiv:2505.08699): a conformer trained with CTC, and a Q-Former over short windows."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import N_TOKENS, GraphBuilder, HParams, Tensor
from pumice.plugin.nn import blocks
from pumice.plugin.unstable import HIDDEN, Samples, SoundPiece, mask_width
from pumice_architectures.hearing.conformer import htk_filters
from pumice_architectures.hearing.conformer_block import Around, Conformer
from pumice_architectures.hearing.mel import HOP, WINDOW, Mel
from pumice_architectures.vision.qformer import query_block, query_norm
from pumice_architectures.vision.vit import window_mask

N_FFT = 512
FLOOR = 1e-10
MOST_ROWS = 1800  # that are encoded at once: 36 seconds
MOST_CHUNK, MOST_TAPS, MOST_WINDOW, MOST_BINS = 8192, 255, 1024, 512
LANES = 16  # the size of heads is a multiple of it


class GraniteSpeech(Conformer):
    """A row has two frames, and attends within chunks; each window of rows becomes a few rows of the language model."""

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.n_embd = hparams.positive("embedding_length")
        self.n_head, self.n_query_head = (
            hparams.positive(f"{name}head_count") for name in ("attention.", "projector.")
        )
        self.eps = hparams.number("attention.layer_norm_epsilon")
        self.n_bins = hparams.positive("num_mel_bins", MOST_BINS)  # of two frames
        self.chunk = hparams.positive("chunk_size", MOST_CHUNK)
        self.around = Around(hparams.positive("conv_kernel_size", MOST_TAPS))
        self.most_distance = hparams.positive("max_pos_emb")
        self.window = hparams.positive("projector.window_size", MOST_WINDOW)
        self.n_queries = self.window // hparams.positive("projector.downsample_rate")
        self.taken = tuple(hparams.integers("feature_layer", ()))
        if self.n_bins % 2:
            raise hparams.wrong("num_mel_bins", f"is {self.n_bins}, expected the bins of two frames")
        if self.chunk > self.most_distance:
            raise hparams.wrong("chunk_size", f"is {self.chunk}, but positions reach {self.most_distance}")
        if not self.n_queries:
            raise hparams.wrong("projector.downsample_rate", f"exceeds the window of {self.window} rows")
        unit = math.lcm(self.chunk, self.window)
        self.piece_rows = unit * max(1, MOST_ROWS // unit)
        self.n_rows = self.piece_rows
        self.padded = -self.chunk % LANES

    def prepare(self, samples: Samples) -> Iterator[str | SoundPiece]:
        frames = paired_mel(samples, self.n_bins // 2)
        for start in range(0, len(frames), self.piece_rows):
            yield self._piece(frames[start : start + self.piece_rows])

    def count_rows(self, n_samples: int) -> int:
        return -(-((n_samples // HOP + 1) // 2) // self.window) * self.n_queries

    def _piece(self, frames: Mel) -> SoundPiece:
        n, n_windows = len(frames), -(-len(frames) // self.window)
        rows = np.arange(n_windows * self.window, dtype=np.int32)
        is_row, place = rows < n, rows % np.int32(self.window)
        patches = np.zeros((len(rows), self.n_bins), np.float32)
        patches[:n] = frames
        chunks = np.where(is_row, rows // self.chunk, -1)
        queries = window_mask(rows // self.window, self.n_rows)
        queries[:, : len(rows)] += np.where(place < self.n_queries, np.float32(0), np.float32(HIDDEN))
        in_chunk = rows % np.int32(self.chunk)
        distances = in_chunk[:, None] - np.arange(self.chunk, dtype=np.int32) + np.int32(self.chunk - 1)
        inputs: dict[str, NDArray[Any]] = {
            "patches": patches,
            "is row": is_row.astype(np.float32)[:, None],
            "chunks": window_mask(chunks.astype(np.int32), self.n_rows),
            "windows": window_mask(rows // self.window, self.n_rows),
            "queries": queries,
            "query": np.minimum(place, self.n_queries - 1),
            "distances": np.ascontiguousarray(np.repeat(distances[:, None], self.n_head, 1)),
            "places": (in_chunk[:, None, None] == np.arange(self.chunk + self.padded)).astype(np.float32),
            "zeros": np.zeros((len(rows), 1, self.padded or 1), np.float32),
            "kept": rows[place < self.n_queries],
        }
        inputs |= self.around.inputs(len(rows), n)
        return SoundPiece(inputs, n_windows * self.n_queries)

    def build(self, g: GraphBuilder) -> Tensor:
        x = blocks.linear(g, g.input("patches", (N_TOKENS, self.n_bins)), "a.input_projection", self.n_embd)
        kept = [x] if 0 in self.taken else []
        for i in range(self.n_layer):
            with g.layer(i):
                x = self.block(g, x, f"a.blk.{i}.")
                if i + 1 == self.n_layer // 2:
                    x = x + self._guessed(g, x)  # also in what is kept of this layer, unlike llama.cpp
                kept += [x] if i + 1 in self.taken else []
        x = functools.reduce(g.concat, [*kept, x]) * g.input("is row", (N_TOKENS, 1))
        x = self._queried(g, x)
        size = g.size("n_kept", self.n_rows // self.window * self.n_queries)
        return blocks.linear(g, g.get_rows(x, g.input("kept", (size,), "i32")), "a.proj_linear", self.width)

    def _guessed(self, g: GraphBuilder, x: Tensor) -> Tensor:
        """Return what the probabilities of the CTC head add to rows (self-conditioning, arXiv:2104.02724)."""
        return blocks.linear(g, g.softmax(blocks.linear(g, x, "a.enc_ctc_out")), "a.enc_ctc_out_mid", self.n_embd)

    def attention(self, g: GraphBuilder, x: Tensor, blk: str) -> Tensor:
        """Attend within chunks, with scores of distances (Shaw et al. 2018, arXiv:1803.02155).

        A key has a 1 at its place in the chunk, where a query has its score for the distance of that key.
        """
        n = int(g.weight(f"{blk}attn_q.weight").shape[0])
        d = n // self.n_head
        q, k, v = (blocks.linear(g, x, blk + name, n).reshape(N_TOKENS, self.n_head, d) for name in blocks.QKV)
        q = q * d**-0.5
        table = g.weight(f"{blk}attn_rel_pos_emb", (2 * self.most_distance + 1, d))
        first = self.most_distance - self.chunk + 1
        relative = g.linear(q, table.rows(first, first + 2 * self.chunk - 1))
        q = g.concat(q, g.gather(relative, g.input("distances", (N_TOKENS, self.n_head, self.chunk), "i32")))
        if self.padded:
            q = g.concat(q, g.input("zeros", (N_TOKENS, 1, self.padded)))
        k = g.concat(k, g.input("places", (N_TOKENS, 1, self.chunk + self.padded)))
        y = g.attention(q, k, v, scale=1.0, causal=False, cache=False, mask=self._mask(g, "chunks"))
        return blocks.linear(g, y.reshape(N_TOKENS, n), f"{blk}attn_out", self.n_embd)

    def _mask(self, g: GraphBuilder, name: str) -> Tensor:
        return g.input(name, (N_TOKENS, mask_width(self.n_rows)))

    def batch_normed(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        stored = name if g.find_weight(f"{name}.weight") else f"{name}_var"  # as llama.cpp's converter of 2026 names it
        return super().batch_normed(g, x, stored)

    def _queried(self, g: GraphBuilder, x: Tensor) -> Tensor:
        """Return learned queries, the first rows of each window, that have attended to each other and to the window."""
        n = int(g.weight("a.proj_norm.weight").shape[0])
        table = g.weight("a.proj_query", (1, self.n_queries, n))
        rows = g.derived("a.proj_query.rows", (self.n_queries, n), lambda w: w.reshape(self.n_queries, n), table)
        y = query_norm(g, g.embedding(rows, g.input("query", (N_TOKENS,), "i32")), "a.proj_norm")
        among, to_rows = (functools.partial(self._looked, g, mask) for mask in ("queries", "windows"))
        i = 0
        while g.find_weight(f"a.proj_blk.{i}.self_attn_q.weight"):
            y = query_block(g, y, x, f"a.proj_blk.{i}.", self.n_query_head, among, to_rows)
            i += 1
        return y

    def _looked(self, g: GraphBuilder, mask: str, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scale = int(q.shape[-1]) ** -0.5
        return g.attention(q, k, v, scale=scale, causal=False, cache=False, mask=self._mask(g, mask))


def paired_mel(samples: Samples, n_mels: int) -> Mel:
    """Return the log-mel spectrogram ``[n, 2 * n_mels]`` of samples, on HTK's scale, with two frames in a row.

    The logarithm reaches 8 decades below the loudest value, and is scaled as ``x / 4 + 1``.
    """
    padded = np.pad(samples, N_FFT // 2, "reflect" if len(samples) > N_FFT // 2 else "edge")
    frames = np.lib.stride_tricks.sliding_window_view(padded, N_FFT)[::HOP]
    window = np.zeros(N_FFT)
    start = (N_FFT - WINDOW) // 2
    window[start : start + WINDOW] = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)
    power = np.abs(np.fft.rfft(frames * window)) ** 2
    mel = np.log10(np.maximum(power @ htk_filters(n_mels, N_FFT), FLOOR))
    mel = np.maximum(mel, mel.max() - 8) / 4 + 1
    return mel[: len(mel) // 2 * 2].reshape(-1, 2 * n_mels).astype(np.float32)
