"""Whisper's encoder (Radford et al. 2022, arXiv:2212.04356) with the projectors of several models."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import N_TOKENS, GraphBuilder, HParams, ModelError, Tensor, fixed
from pumice.plugin.nn import blocks
from pumice.plugin.unstable import AudioEncoder, Samples, SoundPiece
from pumice_architectures.hearing.mel import HOP, WINDOW_FRAMES, Mel, log_mel, padded_to
from pumice_architectures.vision.convolution import row
from pumice_architectures.vision.vit import falling

MOST_MELS = 256
MOST_STACKED = 64


class Whisper(AudioEncoder):
    """Two convolutions over the spectrogram, the second of which halves the frames, and a transformer.

    A class defines which rows it computes, and how these become embeddings.
    """

    before, after = "", ""  # texts around a sound
    freqs: tuple[float, ...] = ()  # of rotary positions, in place of learned ones
    neox = False  # whether values that are half of the turned ones apart make a pair

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.n_embd = hparams.positive("embedding_length")
        self.n_head = hparams.positive("attention.head_count")
        self.n_mels = hparams.positive("num_mel_bins", MOST_MELS)
        self.eps = hparams.number("attention.layer_norm_epsilon")
        if self.n_embd % self.n_head:
            raise hparams.wrong("attention.head_count", f"is {self.n_head}, which does not divide {self.n_embd}")
        self.n_rows = WINDOW_FRAMES // 2

    def prepare(self, samples: Samples) -> Iterator[str | SoundPiece]:
        yield from [self.before] if self.before else []
        yield from self.pieces(samples)
        yield from [self.after] if self.after else []

    def pieces(self, samples: Samples) -> Iterator[SoundPiece]:
        """Yield a piece for each 30 seconds."""
        raise NotImplementedError

    def piece(self, mel: Mel, n_frames: int, together: int = 0) -> SoundPiece:
        """Return the piece of the first frames of a spectrogram ``[n, n_mels]``.

        Args:
            mel: what the convolutions see.
            n_frames: frames whose rows are computed.
            together: rows that ``build`` joins to an embedding, by inputs of their numbers; a last embedding of fewer
                rows is left out. None by default.
        """
        n = halved(n_frames)
        around = np.zeros((2 * n + 2, self.n_mels), np.float32)  # the frame before, all of them, and the one behind
        around[1 : 1 + len(mel)] = mel[: 2 * n + 1]
        patches = np.lib.stride_tricks.sliding_window_view(around, (4, self.n_mels))[::2, 0]
        rows = np.arange(n, dtype=np.int32)
        inputs: dict[str, NDArray[Any]] = {
            "patches": patches.reshape(n, -1),
            "previous": np.maximum(rows - 1, 0),
            "has_previous": np.minimum(rows, 1).astype(np.float32)[:, None],
            "has_next": (2 * rows + 1 < len(mel)).astype(np.float32)[:, None],
        }
        return SoundPiece(inputs | together_inputs(n, together), n // max(together, 1))

    def encoded(self, g: GraphBuilder) -> Tensor:
        """Return the rows ``[n_tokens, n_embd]`` after the blocks, without the last norm."""
        x = self.convolved(g)
        if not self.freqs:
            table = g.weight("a.position_embd.weight")
            if fixed(table.shape)[1:] != (self.n_embd,) or fixed(table.shape)[0] < self.n_rows:
                raise ModelError(f"tensor {table.name} has shape {list(table.shape)}, for {self.n_rows} rows")
            x = x + g.embedding(table, g.positions)
        return self.transformed(g, x)

    def transformed(self, g: GraphBuilder, x: Tensor) -> Tensor:
        """Return rows ``[n_tokens, n_embd]`` after the blocks."""
        for i in range(self.n_layer):
            with g.layer(i):
                x = self.block(g, x, i)
        return x

    def block(self, g: GraphBuilder, x: Tensor, i: int) -> Tensor:
        """Return rows after block ``i``."""
        blk = f"a.blk.{i}."
        x = x + self._attention(g, self.norm(g, x, f"{blk}ln1"), i)
        return x + self.feed_forward(g, self.norm(g, x, f"{blk}ln2"), blk)

    def seen(self, i: int) -> dict[str, Any]:
        """Return the options of attention in block ``i``."""
        return {"causal": False}

    def feed_forward(self, g: GraphBuilder, x: Tensor, blk: str) -> Tensor:
        y = g.gelu_erf(blocks.linear(g, x, f"{blk}ffn_up"))
        return blocks.linear(g, y, f"{blk}ffn_down", self.n_embd)

    def norm(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        return blocks.layer_norm(g, x, name, self.eps)

    def convolved(self, g: GraphBuilder) -> Tensor:
        """Return ``[n_tokens, n_embd]``: both convolutions over three frames each.

        A row of ``patches`` has the four frames around the two for which the first convolution is computed. The second
        one takes these two, and the later one of the row before.
        """
        n, patches = self.n_mels, g.input("patches", (N_TOKENS, 4 * self.n_mels))
        even = g.gelu_erf(self._convolution(g, g.slice(patches, 0, 3 * n), 1, n))
        odd = g.gelu_erf(self._convolution(g, g.slice(patches, n, 4 * n), 1, n))
        odd = odd * g.input("has_next", (N_TOKENS, 1))
        left = g.get_rows(odd, g.input("previous", (N_TOKENS,), "i32")) * g.input("has_previous", (N_TOKENS, 1))
        return g.gelu_erf(self._convolution(g, g.concat(g.concat(left, even), odd), 2, self.n_embd))

    def _convolution(self, g: GraphBuilder, x: Tensor, number: int, width: int) -> Tensor:
        """Return the convolution of rows with three frames of ``width`` values each."""
        name = f"a.conv1d.{number}"
        kernel = g.weight(f"{name}.weight", (self.n_embd, width, 3))
        flat = g.derived(f"{name}.flat", (self.n_embd, 3 * width), flat_kernel, kernel)
        return g.linear(x, flat, row(g, f"{name}.bias", self.n_embd))

    def _attention(self, g: GraphBuilder, x: Tensor, i: int) -> Tensor:
        d, blk = self.n_embd // self.n_head, f"a.blk.{i}."
        q, k, v = (
            blocks.linear(g, x, blk + name, self.n_embd).reshape(N_TOKENS, self.n_head, d)
            for name in ("attn_q", "attn_k", "attn_v")
        )
        if self.freqs:
            q, k = (g.rope(y, g.positions, freqs=self.freqs, neox=self.neox) for y in (q, k))
        y = g.attention(q, k, v, scale=d**-0.5, cache=False, **self.seen(i))
        return blocks.linear(g, y.reshape(N_TOKENS, self.n_embd), f"{blk}attn_out", self.n_embd)

    def together(self, g: GraphBuilder, x: Tensor, n: int) -> list[Tensor]:
        """Return the rows ``i``, ``i + n``, ... of ``x`` for each ``i`` below ``n``."""
        size = g.size("n_joined", max(self.n_rows // n, 1))
        return [g.get_rows(x, g.input(f"joined.{i}", (size,), "i32")) for i in range(n)]

    def projected(self, g: GraphBuilder, x: Tensor, first: str, second: str) -> Tensor:
        """Return two linear maps with gelu between them."""
        return blocks.linear(g, g.gelu_erf(blocks.linear(g, x, first)), second, self.width)


def halved(n: int) -> int:
    """Return the length after a convolution of 3 values with stride 2 and a border of 1."""
    return (n + 1) // 2


def cut(n: int, size: int) -> list[int]:
    """Return the lengths of the windows of ``size`` into which ``n`` are cut."""
    return [min(size, n - start) for start in range(0, n, size)]


def together_inputs(n_rows: int, n: int) -> dict[str, NDArray[np.int32]]:
    """Return the inputs ``joined.i``: the rows ``i``, ``i + n``, ... of ``n_rows``, in whole groups of ``n``."""
    return {f"joined.{i}": np.arange(i, n_rows - n_rows % n, n, dtype=np.int32) for i in range(n)}


def flat_kernel(kernel: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return a kernel ``[out, values, frames]`` as a matrix over frames side by side."""
    return np.ascontiguousarray(kernel.transpose(0, 2, 1).reshape(len(kernel), -1))


class Qwen2Audio(Whisper):
    """Qwen2-Audio (Chu et al. 2024, arXiv:2407.10759): pairs of rows are averaged before the last norm."""

    before, after = "<|audio_bos|>", "<|audio_eos|>"

    def pieces(self, samples: Samples) -> Iterator[SoundPiece]:
        window = HOP * WINDOW_FRAMES
        for start in range(0, len(samples), window):
            part = padded_to(samples[start : start + window], 3 * HOP)  # three frames give the fewest rows of a pair
            mel = log_mel(padded_to(part, window), self.n_mels)
            yield self.piece(mel, -(-len(part) // HOP), 2)

    def count_rows(self, n_samples: int) -> int:
        parts = cut(n_samples, HOP * WINDOW_FRAMES)
        return sum(halved(-(-max(n, 3 * HOP) // HOP)) // 2 for n in parts)

    def build(self, g: GraphBuilder) -> Tensor:
        first, second = self.together(g, self.encoded(g), 2)
        x = self.norm(g, (first + second) * 0.5, "a.post_ln")
        return blocks.linear(g, x, "mm.a.fc", self.width)


class Transcribing(Whisper):
    """Whisper's own encoder: windows of 30 seconds, encoded to their ends, whose rows its decoder attends to."""

    def pieces(self, samples: Samples) -> Iterator[SoundPiece]:
        window = HOP * WINDOW_FRAMES
        for start in range(0, max(len(samples), 1), window):
            part = padded_to(samples[start : start + window], window)
            mel = log_mel(part, self.n_mels)
            yield self.piece(mel, WINDOW_FRAMES)

    def count_rows(self, n_samples: int) -> int:
        return self.n_rows * max(len(cut(n_samples, HOP * WINDOW_FRAMES)), 1)

    def build(self, g: GraphBuilder) -> Tensor:
        return self.norm(g, self.encoded(g), "a.post_ln")


class AudioFlamingo3(Qwen2Audio):
    """Audio Flamingo 3 (Goel et al. 2025, arXiv:2507.08128): as Qwen2-Audio, with two linear maps behind."""

    before, after = "", ""

    def build(self, g: GraphBuilder) -> Tensor:
        first, second = self.together(g, self.encoded(g), 2)
        x = self.norm(g, (first + second) * 0.5, "a.post_ln")
        return self.projected(g, x, "mm.a.mlp.1", "mm.a.mlp.2")


class Qwen25Omni(Qwen2Audio):
    """Qwen2.5-Omni (Xu et al. 2025, arXiv:2503.20215): each 2 seconds are heard alone, with positions of their own."""

    window = 200  # frames

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.n_rows = self.window // 2

    def pieces(self, samples: Samples) -> Iterator[SoundPiece]:
        part = padded_to(samples, 3 * HOP)
        n_frames = -(-len(part) // HOP)
        mel = log_mel(padded_to(part, n_frames * HOP + HOP), self.n_mels)[:n_frames]
        for start in range(0, n_frames, self.window):
            window = mel[start : start + self.window]
            if len(window) > 2:  # fewer give no pair of rows
                yield self.piece(window, len(window), 2)

    def count_rows(self, n_samples: int) -> int:
        n_frames = -(-max(n_samples, 3 * HOP) // HOP)
        return sum(halved(n) // 2 for n in cut(n_frames, self.window))


class Stacked(Whisper):
    """Windows of 30 seconds, encoded to their ends, several of whose rows become one."""

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.stack = hparams.positive("projector.stack_factor")
        if self.stack > MOST_STACKED or self.n_rows % self.stack:
            raise hparams.wrong("projector.stack_factor", f"is {self.stack}, which does not divide {self.n_rows} rows")

    def pieces(self, samples: Samples) -> Iterator[SoundPiece]:
        window = HOP * WINDOW_FRAMES
        for start in range(0, len(samples), window):
            part = samples[start : start + window]
            piece = self.piece(log_mel(padded_to(part, window), self.n_mels), WINDOW_FRAMES)
            n = self.kept_rows(len(part))
            yield SoundPiece({**piece.inputs, **together_inputs(n * self.stack, self.stack)}, n)

    def count_rows(self, n_samples: int) -> int:
        return sum(map(self.kept_rows, cut(n_samples, HOP * WINDOW_FRAMES)))

    def kept_rows(self, n_samples: int) -> int:
        """Return the rows of a window that become embeddings."""
        return self.n_rows // self.stack


class GLMASR(Stacked):
    """GLM-ASR (Zhipu AI 2025): rotary positions on half of each head; rows of silence behind a sound are dropped."""

    before, after = "<|begin_of_audio|>", "<|end_of_audio|>"

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.freqs = falling(self.n_embd // self.n_head // 4)

    def kept_rows(self, n_samples: int) -> int:
        return max(halved(-(-n_samples // HOP)) // self.stack, 1)

    def build(self, g: GraphBuilder) -> Tensor:
        x = self.norm(g, self.encoded(g), "mm.a.norm_pre")
        x = functools.reduce(g.concat, self.together(g, x, self.stack))
        return self.projected(g, x, "mm.a.mlp.1", "mm.a.mlp.2")


class MERaLiON(Stacked):
    """MERaLiON-2 (He et al. 2024, arXiv:2412.09818): a second norm of each row, and a gate in the projector."""

    def build(self, g: GraphBuilder) -> Tensor:
        x = self.norm(g, self.encoded(g), "a.post_ln")
        x = self.norm(g, x, "mm.a.norm_pre")
        x = functools.reduce(g.concat, self.together(g, x, self.stack))
        x = g.silu(blocks.linear(g, x, "mm.a.mlp.0"))
        x = g.silu(blocks.linear(g, x, "mm.a.mlp.1")) * blocks.linear(g, x, "mm.a.mlp.2")
        return blocks.linear(g, x, "mm.a.mlp.3", self.width)


class Voxtral(Whisper):
    """Voxtral (Liu et al. 2025, arXiv:2507.13264): four rows side by side become one.

    Sounds are padded to whole windows of 30 seconds, which are encoded to their ends.
    """

    before = "[BEGIN_AUDIO]"

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.stack = hparams.get_int("projector.stack_factor", 4)
        if not 1 <= self.stack <= MOST_STACKED or self.n_rows % self.stack:
            raise hparams.wrong("projector.stack_factor", f"is {self.stack}, which does not divide {self.n_rows} rows")

    def pieces(self, samples: Samples) -> Iterator[SoundPiece]:
        n_windows = -(-len(samples) // (HOP * WINDOW_FRAMES))
        mel = log_mel(padded_to(samples, n_windows * HOP * WINDOW_FRAMES), self.n_mels)
        for window in mel.reshape(n_windows, WINDOW_FRAMES, -1):
            yield self.piece(window, WINDOW_FRAMES, self.stack)

    def count_rows(self, n_samples: int) -> int:
        return len(cut(n_samples, HOP * WINDOW_FRAMES)) * (self.n_rows // self.stack)

    def build(self, g: GraphBuilder) -> Tensor:
        x = self.norm(g, self.encoded(g), "a.post_ln")
        x = functools.reduce(g.concat, self.together(g, x, self.stack))
        return self.projected(g, x, "mm.a.mlp.1", "mm.a.mlp.2")


class Ultravox(Whisper):
    """Ultravox (Fixie AI): rows of the sound's own length, several side by side, and a gated projector.

    The rows behind the end, up to a whole group, are zero. Versions up to 0.4.1 have their second norm behind the last
    linear map, later ones before it.
    """

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.stack = hparams.positive("projector.stack_factor", MOST_STACKED)

    def pieces(self, samples: Samples) -> Iterator[SoundPiece]:
        part = padded_to(samples, max(2, -(-len(samples) // HOP)) * HOP)
        mel = log_mel(part, self.n_mels)
        for start in range(0, len(mel), WINDOW_FRAMES):
            frames = mel[start : start + WINDOW_FRAMES]
            yield self._stacked(self.piece(frames, len(frames)))

    def count_rows(self, n_samples: int) -> int:
        frames = max(2, -(-n_samples // HOP))
        return sum(-(-halved(n) // self.stack) for n in cut(frames, WINDOW_FRAMES))

    def _stacked(self, piece: SoundPiece) -> SoundPiece:
        n_rows = piece.n_rows
        n = -(-n_rows // self.stack)
        rows = np.arange(n * self.stack, dtype=np.int32).reshape(n, self.stack).T
        inputs = dict(piece.inputs)
        for i, joined in enumerate(rows):
            inputs[f"joined.{i}"] = np.ascontiguousarray(np.minimum(joined, n_rows - 1))
            inputs[f"is_row.{i}"] = (joined < n_rows).astype(np.float32)[:, None]
        return SoundPiece(inputs, n)

    def build(self, g: GraphBuilder) -> Tensor:
        x = self.norm(g, self.encoded(g), "a.post_ln")
        size = g.size("n_joined", -(-self.n_rows // self.stack))
        rows = [
            g.get_rows(x, g.input(f"joined.{i}", (size,), "i32")) * g.input(f"is_row.{i}", (size, 1))
            for i in range(self.stack)
        ]
        x = blocks.rms_norm(g, functools.reduce(g.concat, rows), "mm.a.norm_pre", 1e-6)
        y = blocks.linear(g, x, "mm.a.mlp.1")
        n = blocks.width(y)
        y = g.slice(y, 0, n // 2) * g.silu(g.slice(y, n // 2, n))
        if g.find_weight("mm.a.norm_mid.weight") is not None:
            return blocks.linear(g, blocks.rms_norm(g, y, "mm.a.norm_mid", 1e-6), "mm.a.mlp.2", self.width)
        return blocks.rms_norm(g, blocks.linear(g, y, "mm.a.mlp.2", self.width), "mm.a.norm_post", 1e-6)
