"""The decoder of Qwen3-TTS's codec of 12.5 frames a second: 16 codes of each become 1,920 samples.

Codes become rows by residual codebooks, a causal transformer attends among these, and two stages of convolutions make
samples of them: ConvNeXt blocks (Liu et al. 2022, arXiv:2201.03545) and a decoder as DAC's (Kumar et al. 2023,
arXiv:2306.06546), with the activation of Ziyin et al. 2020 (arXiv:2006.08195).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import N_TOKENS, GraphBuilder, ModelError, Tensor
from pumice.plugin.nn import blocks
from pumice.plugin.unstable import GraphRuns, SpeechGraph
from pumice_architectures.speaking.convolution import (
    Inputs,
    Rate,
    convolved,
    earlier,
    rates,
    transposed,
    transposed_inputs,
)

Array = NDArray[np.float32]

RATE = 24_000
UPSAMPLED, RATIOS = (2, 2), (8, 5, 4, 3)  # of the transposed convolutions of both stages
FRAME = math.prod(UPSAMPLED + RATIOS)  # samples
DILATIONS = (1, 3, 9)
TAPS = 7  # of convolutions
WINDOW = 16  # frames that are decoded at once
CODE_CONTEXT = 2  # frames before a window, which the convolution before the transformer sees
CONTEXT = 5  # frames before a window, which the first stage sees: 4.5
FINE = math.prod(UPSAMPLED)  # rows of a frame between the stages
FINE_CONTEXT = 20  # such rows before a window, which the second stage sees: 19.6
MOST_FINE = WINDOW * FINE + FINE_CONTEXT
MOST_FRAMES = 4096  # of a speech
N_LAYER, N_HEAD, FREQ_BASE, REACH, EPS, NORM_EPS = 8, 16, 10_000.0, 72, 1e-5, 1e-6


@dataclass(frozen=True)
class Layers:
    """Layers of a causal transformer with gated feed-forwards, whose tensors begin with ``prefix`` and a number.

    ``reach`` is the window of attention in rows; 0: all earlier rows.
    """

    prefix: str
    n_layer: int
    n_head: int
    n_head_kv: int
    freq_base: float
    eps: float
    reach: int = 0

    def attended(self, g: GraphBuilder, x: Tensor) -> Tensor:
        """Return ``x [rows, n]`` after all layers. Raises ModelError if the file has more layers."""
        for i in range(self.n_layer):
            with g.layer(i):
                blk = f"{self.prefix}{i}."
                y = self._attention(g, blocks.rms_norm(g, x, f"{blk}ln1", self.eps), blk)
                x = x + _scaled(g, y, f"{blk}ls1.weight")
                n_ff = int(g.weight(f"{blk}ffn_up.weight").shape[0])
                y = blocks.gated_feed_forward(g, blocks.rms_norm(g, x, f"{blk}ln2", self.eps), blk, n_ff, g.silu)
                x = x + _scaled(g, y, f"{blk}ls2.weight")
        if g.find_weight(f"{self.prefix}{self.n_layer}.ln1.weight"):
            raise ModelError(f"more than {self.n_layer} layers {self.prefix}*")
        return x

    def _attention(self, g: GraphBuilder, x: Tensor, blk: str) -> Tensor:
        n = int(g.weight(f"{blk}attn_q.weight").shape[0])
        if n % (2 * self.n_head):
            raise ModelError(f"tensor {blk}attn_q.weight has {n} rows, which {self.n_head} heads cannot share")
        d = n // self.n_head
        shapes = {"q": self.n_head, "k": self.n_head_kv, "v": self.n_head_kv}
        q, k, v = (
            blocks.linear(g, x, f"{blk}attn_{name}", heads * d).reshape(N_TOKENS, heads, d)
            for name, heads in shapes.items()
        )
        if g.find_weight(f"{blk}attn_q_norm.weight"):
            q = blocks.rms_norm(g, q, f"{blk}attn_q_norm", self.eps)
            k = blocks.rms_norm(g, k, f"{blk}attn_k_norm", self.eps)
        freqs = tuple(float(self.freq_base ** (-2 * i / d)) for i in range(d // 2))
        q, k = (g.rope(y, g.positions, freqs=freqs, neox=True) for y in (q, k))
        y = g.attention(q, k, v, scale=d**-0.5, window=self.reach)
        return blocks.linear(g, y.reshape(N_TOKENS, n), f"{blk}attn_out", blocks.width(x))


def _scaled(g: GraphBuilder, x: Tensor, name: str) -> Tensor:
    weight = g.find_weight(name, (blocks.width(x),))
    return x * weight if weight else x


def codec_graphs(n_codes: int, book: int) -> Mapping[str, SpeechGraph]:
    """Return the graphs of the decoder, for frames of ``n_codes`` codes, of codebooks of ``book`` rows."""
    return {
        "latents": SpeechGraph(lambda g: _build_latents(g, n_codes, book), WINDOW + CODE_CONTEXT),
        "rows": SpeechGraph(_build_rows, WINDOW, MOST_FRAMES + WINDOW, N_LAYER),
        "fine rows": SpeechGraph(_build_fine_rows, WINDOW + CONTEXT),
        "samples": SpeechGraph(_build_samples, MOST_FINE),
    }


def _build_latents(g: GraphBuilder, n_codes: int, book: int) -> None:
    """Make a row of each frame: that of its first code, and the sum of those of the others, both projected."""
    name, rate = "a.gen.wav.", Rate(1, WINDOW + CODE_CONTEXT)
    n = int(g.weight(f"{name}quant.first.out_proj.weight").shape[0])
    inner = int(g.weight(f"{name}quant.first.codebook.weight").shape[-1])
    first = g.weight(f"{name}quant.first.codebook.weight", (book, inner))
    g.weight(f"{name}quant.rest.codebook.weight", (n_codes - 1, book, inner))
    books = g.all_rows(f"{name}quant.rest.codebook.weight")
    rest = g.sum(g.embedding(books, g.input("rest", (N_TOKENS, n_codes - 1), "i32")), axis=-2)
    x = g.embedding(first, g.input("first", (N_TOKENS,), "i32"))
    x = blocks.linear(g, x, f"{name}quant.first.out_proj", n)
    x = x + blocks.linear(g, rest, f"{name}quant.rest.out_proj", n)
    x = convolved(g, x, f"{name}pre_conv", rate)
    n_embd = int(g.weight(f"{name}tfm.in_proj.weight").shape[0])
    g.output("rows", blocks.linear(g, x, f"{name}tfm.in_proj", n_embd))


def _build_rows(g: GraphBuilder) -> None:
    name = "a.gen.wav.tfm."
    n_embd = int(g.weight(f"{name}in_proj.weight").shape[0])
    layers = Layers(f"{name}blk.", N_LAYER, N_HEAD, N_HEAD, FREQ_BASE, EPS, REACH)
    x = layers.attended(g, g.input("rows", (N_TOKENS, n_embd)))
    g.output(
        "rows", blocks.linear(g, blocks.rms_norm(g, x, f"{name}output_norm", EPS), f"{name}out_proj", _latent_width(g))
    )


def _build_fine_rows(g: GraphBuilder) -> None:
    levels = rates(WINDOW + CONTEXT, UPSAMPLED)
    x: Tensor = g.input("rows", (N_TOKENS, _latent_width(g)))
    for i, (low, high) in enumerate(itertools.pairwise(levels)):
        name = f"a.gen.wav.up.blk.{i}."
        x = _convnext(g, transposed(g, x, f"{name}conv", low, high), name, high)
    g.output("rows", x)


def _build_samples(g: GraphBuilder) -> None:
    levels, name = rates(MOST_FINE, RATIOS), "a.gen.wav.dac."
    x = convolved(g, g.input("rows", (N_TOKENS, _latent_width(g))), f"{name}entry", levels[0])
    for i, (low, high) in enumerate(itertools.pairwise(levels)):
        blk = f"{name}blk.{i}."
        x = transposed(g, _snake(g, x, f"{blk}snake"), f"{blk}conv", low, high)
        for j, dilation in enumerate(DILATIONS):
            h = convolved(g, _snake(g, x, f"{blk}res.{j}.act1"), f"{blk}res.{j}.conv1", high, dilation)
            x = x + convolved(g, _snake(g, h, f"{blk}res.{j}.act2"), f"{blk}res.{j}.conv2", high)
    x = convolved(g, _snake(g, x, f"{name}post_snake"), f"{name}post_conv", levels[-1])
    g.output("samples", g.clamp(x, -1.0, 1.0))


def _latent_width(g: GraphBuilder) -> int:
    return int(g.weight("a.gen.wav.tfm.out_proj.weight").shape[0])


def _convnext(g: GraphBuilder, x: Tensor, name: str, rate: Rate) -> Tensor:
    n, kernel = blocks.width(x), g.weight(f"{name}dwconv.weight")
    n_taps = int(kernel.shape[-1])
    if n_taps > TAPS:
        raise ModelError(f"tensor {name}dwconv.weight has {n_taps} taps, but the model has up to {TAPS}")
    taps = [
        earlier(g, x, rate, n_taps - 1 - tap)
        * g.derived(f"{name}dwconv, tap {tap}", (n,), lambda w, tap=tap: w.reshape(n, n_taps)[:, tap], kernel)
        for tap in range(n_taps)
    ]
    y = reduce(Tensor.__add__, taps) + g.weight(f"{name}dwconv.bias", (n,))
    y = blocks.layer_norm(g, y, f"{name}norm", NORM_EPS)
    y = g.gelu_erf(blocks.linear(g, y, f"{name}pw1"))
    return x + blocks.linear(g, y, f"{name}pw2", n) * g.weight(f"{name}gamma", (n,))


def _snake(g: GraphBuilder, x: Tensor, name: str) -> Tensor:
    """Return ``x + beta * sin(alpha * x)^2``; the file has both factors as they are used here."""
    n = blocks.width(x)
    wave = g.sin(x * g.weight(f"{name}.alpha", (n,)))
    return x + wave * wave * g.weight(f"{name}.beta", (n,))


class CodecDecoder:
    """Turns frames of codes of a speech into samples, from the state that earlier frames left.

    Args:
        run: runs the graphs.
        n_codes: codes of a frame.
        book: rows of a codebook.
    """

    def __init__(self, run: GraphRuns, n_codes: int, book: int) -> None:
        self._run = run
        self._offsets = np.arange(n_codes - 1, dtype=np.int32) * np.int32(book)
        self._frames = np.zeros((0, n_codes), np.int32)  # at most the last ``CODE_CONTEXT`` frames
        self._rows: Array | None = None  # rows of the last window, and up to ``CONTEXT`` before it
        self._fine: Array | None = None  # rows between the stages, and up to ``FINE_CONTEXT`` before them
        run.begin("rows")

    def decode(self, frames: Array) -> Array:
        """Return the samples ``[n * FRAME]`` of the next frames of codes ``[n, n_codes]`` (n up to ``WINDOW``)."""
        codes = np.concatenate([self._frames, np.rint(frames).astype(np.int32)])
        inputs: Inputs = {"first": codes[:, 0].copy(), "rest": codes[:, 1:] + self._offsets}
        inputs |= Rate(1, len(codes)).shifts(len(codes), range(1, CODE_CONTEXT + 1))
        latents = self._run("latents", len(codes), inputs)["rows"][len(self._frames) :]
        made = np.array(self._run("rows", len(frames), {"rows": np.array(latents)})["rows"])
        self._frames = codes[-CODE_CONTEXT:]
        self._rows, n_before = _joined(self._rows, made, CONTEXT)
        fine = self._fine_rows(self._rows)[n_before * FINE :]
        self._fine, _ = _joined(self._fine, fine, FINE_CONTEXT)
        return self._samples(self._fine)[-len(frames) * FRAME :]

    def _fine_rows(self, rows: Array) -> Array:
        inputs = Inputs({"rows": rows})
        for low, high in itertools.pairwise(rates(len(rows), UPSAMPLED)):
            inputs |= transposed_inputs(len(rows), low, high) | high.shifts(len(rows), range(1, TAPS))
        return np.array(self._run("fine rows", len(rows), inputs)["rows"])

    def _samples(self, rows: Array) -> Array:
        inputs, levels = Inputs({"rows": rows}), rates(len(rows), RATIOS)
        inputs |= levels[0].shifts(len(rows), range(1, TAPS))
        distances = sorted({tap * dilation for tap in range(1, TAPS) for dilation in DILATIONS})
        for low, high in itertools.pairwise(levels):
            inputs |= transposed_inputs(len(rows), low, high) | high.shifts(len(rows), distances)
        return np.array(self._run("samples", len(rows), inputs)["samples"]).reshape(-1)


def _joined(previous: Array | None, rows: Array, most: int) -> tuple[Array, int]:
    """Return the last ``most`` previous rows followed by ``rows``, and the number of previous ones."""
    before = rows[:0] if previous is None else previous[-most:]
    return np.concatenate([before, rows]), len(before)
