"""The audio encoder of MiMo-V2.5 (Xiaomi 2026): frames become codes, and groups of codes a row."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import N_TOKENS, GraphBuilder, HParams, ModelError, Tensor
from pumice.plugin.nn import blocks
from pumice.plugin.unstable import Samples, SoundPiece
from pumice_architectures.hearing.conformer import htk_filters
from pumice_architectures.hearing.mel import Mel, padded_to
from pumice_architectures.hearing.whisper import Whisper, cut, flat_kernel, halved
from pumice_architectures.vision.vit import falling

RATE, HOP, N_FFT = 24_000, 240, 960
SEGMENT = 6000  # frames that are encoded together: a minute
LEAST = 1e-7  # magnitude before the logarithm
SKIPPED = 2  # block whose result is added behind the last one
LOCAL_BASE = 640_000.0  # of the rotary positions within a group
MOST_GROUP, MOST_LOCAL, MOST_BOOKS = 64, 64, 64


class MiMoAudio(Whisper):
    """A causal transformer, whose pairs of rows are quantized; the codes' embeddings see those of their group."""

    rate = RATE
    before, after = "<|mimo_audio_start|>", "<|mimo_audio_end|>"
    neox = True

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.head_dim = self.n_embd // self.n_head
        self.freqs = falling(self.head_dim // 2)
        self.n_rows = SEGMENT // 2
        self.group = hparams.positive("local_group_size", MOST_GROUP)
        self.n_local = hparams.positive("local_block_count", MOST_LOCAL)
        self.window = hparams.positive("window_size")
        self.modes = hparams.integers("wa_pattern_mode")
        if len(self.modes) != self.n_layer:
            raise hparams.wrong("wa_pattern_mode", f"has {len(self.modes)} values, expected {self.n_layer}")
        self.books = hparams.integers("rvq.codebook_size")
        n_books = hparams.positive("rvq.num_quantizers", MOST_BOOKS)
        if len(self.books) != n_books or min(self.books) < 1:
            raise hparams.wrong("rvq.codebook_size", f"is {self.books!r:.60}, expected {n_books} sizes")
        if self.n_layer <= SKIPPED:
            raise hparams.wrong("block_count", f"is {self.n_layer}, expected at least {SKIPPED + 1}")

    def pieces(self, samples: Samples) -> Iterator[SoundPiece]:
        mel = spectrogram(samples, self.n_mels)
        for start in range(0, len(mel), SEGMENT):
            yield self._segment(mel[start : start + SEGMENT])

    def count_rows(self, n_samples: int) -> int:
        n_frames = max(n_samples, N_FFT) // HOP + 1
        return sum(-(-halved(halved(n)) // self.group) for n in cut(n_frames, SEGMENT))

    def _segment(self, mel: Mel) -> SoundPiece:
        n = halved(len(mel))
        n_pairs, n_groups = halved(n), -(-halved(n) // self.group)
        n_grouped = n_groups * self.group
        # Rows behind the last one change none before them, and leave room for the groups of a short sound.
        more = max(n, n_grouped) - n
        inputs: dict[str, NDArray[Any]] = {
            name: np.pad(x, ((0, more), *[(0, 0)] * (x.ndim - 1)))
            for name, x in self.piece(mel, len(mel)).inputs.items()
        }
        first, rows = 2 * np.arange(n_pairs, dtype=np.int32), np.arange(n + more, dtype=np.int32)
        inputs |= {
            "joined.0": first,
            "joined.1": np.minimum(first + 1, n - 1),
            "has_second": (first + 1 < n).astype(np.float32)[:, None],
            "pairs": np.minimum(rows, n_pairs - 1),
            "places": rows % np.int32(self.group),
        }
        ids = np.arange(n_grouped, dtype=np.int32).reshape(n_groups, self.group).T
        inputs |= {f"grouped.{i}": np.ascontiguousarray(row) for i, row in enumerate(ids)}
        return SoundPiece(inputs, n_groups)

    def seen(self, i: int) -> dict[str, Any]:
        return {"window": 0 if self.modes[i] == -1 else self.window + 1}

    def build(self, g: GraphBuilder) -> Tensor:
        x = self._halved(g, self._encoded(g))
        x = g.get_rows(self._quantized(g, x), g.input("pairs", (N_TOKENS,), "i32"))
        for i in range(self.n_local):
            x = self._local_block(g, x, f"mm.a.local_blk.{i}.")
        x = blocks.rms_norm(g, x, "mm.a.local_norm", self.eps)
        size = g.size("n_groups", -(-halved(self.n_rows) // self.group))
        rows = [g.get_rows(x, g.input(f"grouped.{i}", (size,), "i32")) for i in range(self.group)]
        return self.projected(g, functools.reduce(g.concat, rows), "mm.a.mlp.1", "mm.a.mlp.2")

    def _encoded(self, g: GraphBuilder) -> Tensor:
        """Return the rows after the blocks, and an earlier block's, with their norm."""
        x = skipped = self.convolved(g)
        for i in range(self.n_layer):
            with g.layer(i):
                x = self.block(g, x, i)
            skipped = x if i == SKIPPED else skipped
        return self.norm(g, x + skipped, "a.post_ln")

    def _halved(self, g: GraphBuilder, x: Tensor) -> Tensor:
        """Return a row for each pair of rows, of which the last one may lack its second row."""
        n = self.n_embd
        first, second = self.together(g, x, 2)
        second = second * g.input("has_second", (second.shape[0], 1))
        kernel = g.weight("a.downsample.conv.weight", (n, n, 2))
        flat = g.derived("a.downsample.conv.flat", (n, 2 * n), flat_kernel, kernel)
        x = g.gelu_erf(g.linear(g.concat(first, second), flat))
        return self.norm(g, x, "a.downsample.norm")

    def _quantized(self, g: GraphBuilder, x: Tensor) -> Tensor:
        """Return the sum of the embeddings of each row's codes: of the nearest vector of a book, then of the rest."""
        n, stored = self.n_embd, [g.weight(f"{name}.weight") for name in ("a.rvq.codebook", "mm.a.code_embd")]
        for table in stored:
            shape, n_books, longest = table.shape, len(self.books), max(self.books)
            if len(shape) != 3 or shape[0] != n_books or int(shape[1]) < longest or shape[2] != n:
                expected = f"[{n_books}, {longest} or more, {n}]"
                raise ModelError(f"tensor {table.name} has shape {list(shape)}, expected {expected}")
        total = []
        for i, size in enumerate(self.books):
            book, embeddings = (
                g.derived(f"{table.name}.{i}", (size, n), functools.partial(_book, i, size), table) for table in stored
            )
            lengths = g.derived(
                f"{stored[0].name}.{i}.lengths", (size,), functools.partial(_lengths, i, size), stored[0]
            )
            ids = g.top_k(g.linear(x, book, lengths), 1).reshape(x.shape[0])
            total.append(g.embedding(embeddings, ids))
            x = x + g.embedding(book, ids) * -1.0
        return functools.reduce(Tensor.__add__, total)

    def _local_block(self, g: GraphBuilder, x: Tensor, blk: str) -> Tensor:
        n_head, d, eps = self.n_head, self.head_dim, self.eps
        y = blocks.rms_norm(g, x, f"{blk}ln1", eps)
        q, k, v = (blocks.linear(g, y, f"{blk}attn_{part}", self.n_embd).reshape(N_TOKENS, n_head, d) for part in "qkv")
        places, freqs = g.input("places", (N_TOKENS,), "i32"), falling(d // 2, LOCAL_BASE)
        q, k = (g.rope(part, places, freqs=freqs, neox=True) for part in (q, k))
        y = g.attention(q, k, v, scale=d**-0.5, causal=False, cache=False, chunk=self.group)
        x = x + blocks.linear(g, y.reshape(N_TOKENS, self.n_embd), f"{blk}attn_out", self.n_embd)
        y = blocks.rms_norm(g, x, f"{blk}ln2", eps)
        return x + blocks.gated_feed_forward(g, y, blk, int(g.weight(f"{blk}ffn_up.weight").shape[0]), g.silu)


def spectrogram(samples: Samples, n_mels: int) -> Mel:
    """Return the log-mel spectrogram ``[n // HOP + 1, n_mels]`` of samples, on HTK's scale, of magnitudes."""
    padded = np.pad(padded_to(samples, N_FFT), N_FFT // 2, "reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, N_FFT)[::HOP]
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(N_FFT) / N_FFT)
    filters = htk_filters(n_mels, N_FFT, highest=RATE / 2, rate=RATE)
    mel = [np.abs(np.fft.rfft(part * window)) @ filters for part in np.array_split(frames, -(-len(frames) // 1024))]
    return np.log(np.maximum(np.concatenate(mel), LEAST)).astype(np.float32)


def _book(i: int, size: int, table: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.ascontiguousarray(table[i, :size])


def _lengths(i: int, size: int, table: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return what is added to a row's products with a book's vectors, so that the nearest has the largest."""
    return np.square(table[i, :size].astype(np.float64)).sum(-1).astype(np.float32) * np.float32(-0.5)
