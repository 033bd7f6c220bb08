"""The audio encoders of Qwen3-ASR and Qwen3-Omni (Xu et al. 2025, arXiv:2509.17765), and of dots3 note."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import N_TOKENS, GraphBuilder, HParams, ModelError, Tensor
from pumice.plugin.nn import blocks
from pumice.plugin.unstable import Samples, SoundPiece
from pumice_architectures.hearing.bins import TAPS, first_convolved, joined_bins
from pumice_architectures.hearing.mel import HOP, WINDOW, Mel, log_mel, padded_to
from pumice_architectures.hearing.whisper import Whisper, cut, halved
from pumice_architectures.vision.convolution import row, summed, tap_inputs
from pumice_architectures.vision.vit import falling

SHORTEST = 8000  # samples; shorter sounds are padded
MOST_CHANNELS = 1024  # of the convolutions; published models have 480


class ConvolvedMel(Whisper):
    """Three convolutions over time and frequency, each of which halves both, in front of a transformer.

    Attributes:
        chunk: most frames that the convolutions see together.
        chunks: most chunks of a piece.
    """

    chunk: int
    chunks: int

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.bins, self.most_times = halvings(self.n_mels), halvings(self.chunk)
        self.n_rows = self.chunks * self.most_times[-1]

    def stem_inputs(self, mel: Mel, n_rows: int) -> dict[str, NDArray[Any]]:
        """Return the inputs of the convolutions over chunks ``[chunks, frames, n_mels]``, for the first rows."""
        bordered = np.pad(mel, ((0, 0), (1, 1), (1, 1)))
        views = np.lib.stride_tricks.sliding_window_view(bordered, (3, 3), (1, 2))[:, ::2, ::2]
        inputs: dict[str, NDArray[Any]] = {"frames": np.ascontiguousarray(views.swapaxes(-1, -2)).reshape(-1, TAPS)}
        times = halvings(mel.shape[1])
        for number in (2, 3):
            inputs |= self._neighbours(number, len(mel), times)
        rows = np.arange(n_rows, dtype=np.int32)
        return inputs | {f"bin.{f}": rows * self.bins[-1] + np.int32(f) for f in range(self.bins[-1])}

    def _neighbours(self, number: int, n_chunks: int, times: list[int]) -> dict[str, NDArray[Any]]:
        """Return the inputs of a convolution: the rows under each tap of its kernel, and whether there is one."""
        grid, inputs = (times[number - 1], self.bins[number - 1]), dict[str, NDArray[Any]]()
        taps, starts = tap_inputs("tap", grid, 3, 2), np.arange(n_chunks, dtype=np.int32) * np.int32(grid[0] * grid[1])
        for tap in range(TAPS):  # of the kernel, whose rows are frequencies
            place = f"tap.{tap % 3 * 3 + tap // 3}"
            inputs[f"conv{number}.{tap}"] = np.add.outer(starts, taps[place]).reshape(-1)
            inputs[f"conv{number}.{tap}.inside"] = np.tile(taps[f"{place}.inside"], (n_chunks, 1))
        return inputs

    def stem(self, g: GraphBuilder) -> Tensor:
        """Return the rows ``[n_tokens, n_embd]`` of the convolutions."""
        n_channels = int(g.weight("a.conv2d.1.weight").shape[0])
        if n_channels > MOST_CHANNELS:
            raise ModelError(
                f"tensor a.conv2d.1.weight has {n_channels} channels, at most {MOST_CHANNELS} are supported"
            )
        g.weight("a.conv2d.1.weight", (n_channels, 1, 3, 3))  # raises ModelError for another shape
        x = first_convolved(g, "a.conv2d.1", g.size("n_conv1", self._most(1)))
        x = g.gelu_erf(x + row(g, "a.conv2d.1.bias", n_channels))
        for number in (2, 3):
            size = g.size(f"n_conv{number}", self._most(number))
            x = summed(g, x, f"conv{number}", f"a.conv2d.{number}", size)
            x = g.gelu_erf(x + row(g, f"a.conv2d.{number}.bias", n_channels))
        return joined_bins(g, x, "a.conv_out", self.n_embd, self.bins[-1], by_channel=True)

    def _most(self, number: int) -> int:
        """Return the most rows that a convolution gives."""
        return self.chunks * self.most_times[number] * self.bins[number]


class Qwen3Audio(ConvolvedMel):
    """Convolutions over each second, and a transformer over windows of 8 seconds.

    A second becomes 13 rows; the last, shorter one as many as its frames need.
    """

    before, after = "<|audio_start|>", "<|audio_end|>"
    chunk, chunks = 100, 8

    def pieces(self, samples: Samples) -> Iterator[SoundPiece]:
        mel = log_mel(padded_to(samples, SHORTEST), self.n_mels)
        for start in range(0, len(mel), self.chunk * self.chunks):
            yield self._window(mel[start : start + self.chunk * self.chunks])

    def count_rows(self, n_samples: int) -> int:
        n_chunks, last = divmod(max(n_samples, SHORTEST) // HOP, self.chunk)
        return n_chunks * self.most_times[-1] + halvings(last)[-1]

    def _window(self, mel: Mel) -> SoundPiece:
        n_frames = len(mel)
        n_chunks = -(-n_frames // self.chunk)
        padded = np.pad(mel, ((0, n_chunks * self.chunk - n_frames), (0, 0)))
        n_rows = self.count_rows(n_frames * HOP)
        rows = np.arange(n_rows, dtype=np.int32)
        inputs = self.stem_inputs(padded.reshape(n_chunks, self.chunk, self.n_mels), n_rows)
        return SoundPiece({"patches": rows % np.int32(self.most_times[-1]), **inputs}, n_rows)

    def build(self, g: GraphBuilder) -> Tensor:
        x, positions = self.stem(g), g.weight("a.position_embd.weight")
        x = self.transformed(g, x + g.embedding(positions, g.input("patches", (N_TOKENS,), "i32")))
        return self.projected(g, self.norm(g, x, "a.post_ln"), "mm.a.mlp.1", "mm.a.mlp.2")


class Dots3NoteAudio(ConvolvedMel):
    """dots3 note (Xiaohongshu 2026): a minute is heard together, with rotary positions on half of each head.

    A row is of 80 milliseconds. What is left of the last one may have no whole frame; its row is zero then.
    """

    before, after = "<|audio_comp_start|>", "<|audio_comp_end|>"
    chunk, chunks = 6000, 1
    neox = True
    SAMPLES = 8 * HOP  # of a row

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.freqs = falling(self.n_embd // self.n_head // 4)

    def pieces(self, samples: Samples) -> Iterator[SoundPiece]:
        longest = self.chunk * HOP
        for start in range(0, len(samples), longest):
            yield self._minute(padded_to(samples[start : start + longest], HOP), longest)

    def count_rows(self, n_samples: int) -> int:
        return sum(-(-n // self.SAMPLES) for n in cut(n_samples, self.chunk * HOP))

    def _minute(self, samples: Samples, longest: int) -> SoundPiece:
        n_rows, n_frames = -(-len(samples) // self.SAMPLES), len(samples) // HOP
        mel = log_mel(padded_to(samples, min(len(samples) + WINDOW, longest)), self.n_mels)[:n_frames]
        n_heard = halvings(n_frames)[-1]
        rows = np.minimum(np.arange(n_rows, dtype=np.int32), n_heard - 1)
        is_heard = (np.arange(n_rows) < n_heard).astype(np.float32)[:, None]
        inputs = self.stem_inputs(mel[None], n_heard)
        bins = {name: values[rows] for name, values in inputs.items() if name.startswith("bin.")}
        return SoundPiece({"patches": is_heard, **inputs, **bins}, n_rows)

    def norm(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        return blocks.rms_norm(g, x, name, self.eps)

    def feed_forward(self, g: GraphBuilder, x: Tensor, blk: str) -> Tensor:
        n_ff = int(g.weight(f"{blk}ffn_up.weight").shape[0])
        return blocks.gated_feed_forward(g, x, blk, n_ff, g.silu)

    def build(self, g: GraphBuilder) -> Tensor:
        x = self.transformed(g, self.stem(g) * g.input("patches", (N_TOKENS, 1)))
        x = blocks.layer_norm(g, self.norm(g, x, "a.post_ln"), "mm.a.norm_pre", 1e-5)
        return self.projected(g, x, "mm.a.mlp.1", "mm.a.mlp.3")


def halvings(n: int) -> list[int]:
    """Return a length, and those after each of three convolutions."""
    lengths = [n]
    for _ in range(3):
        lengths.append(halved(lengths[-1]))
    return lengths
