"""The encoder of voices of Qwen3-TTS: one row of a sound by ECAPA-TDNN (Desplanques et al. 2020, arXiv:2005.07143).

Its means over time are computed between the steps of its graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import N_TOKENS, GraphBuilder, RequestError, Tensor
from pumice.plugin.nn import blocks
from pumice.plugin.unstable import GraphRuns, SpeechGraph
from pumice_architectures.hearing.mel import mel_filters
from pumice_architectures.speaking.convolution import flat_linear

Array = NDArray[np.float32]

RATE, N_FFT, HOP = 24_000, 1024, 256
FLOOR, LEAST_POWER = 1e-5, 1e-9  # of mel values, of squared magnitudes
PAD = (N_FFT - HOP) // 2  # samples that are mirrored at both ends
DILATIONS = (2, 3, 4)
PARTS = 8  # of a block's channels, to each of which the result of the previous one is added
REACH = 4  # rows between a row and the farthest that a convolution sees
LEAST_VARIANCE = 1e-12


def voice_graphs(n_mels: int, seconds: float) -> Mapping[str, SpeechGraph]:
    """Return the graphs for sounds of up to some seconds."""
    builds: dict[str, Callable[[GraphBuilder], None]] = {
        "begin": partial(_build_begin, n_mels=n_mels),
        "all": _build_all,
        "scores": _build_scores,
    }
    for i in range(len(DILATIONS)):
        builds |= {f"block {i}": partial(_build_block, i=i), f"gate {i}": partial(_build_gate, i=i)}
    most = int(seconds * RATE) // HOP + 1
    graphs = {f"voice {name}": SpeechGraph(build, most) for name, build in builds.items()}
    return {**graphs, "voice row": SpeechGraph(_build_row, 1)}


def voice_row(run: GraphRuns, samples: Array, n_mels: int) -> Array:
    """Return the row ``[1, width]`` of a voice. Raises RequestError for a sound that is too short."""
    if len(samples) < N_FFT:
        raise RequestError(f"voice: {len(samples)} samples, but the model needs at least {N_FFT}")
    mel = log_mel(samples, n_mels)
    n = len(mel)
    near = {_row_at(d): _mirrored(np.arange(n) + d, n) for d in range(-REACH, REACH + 1) if d}

    def step(graph: str, **inputs: Array) -> Array:
        return np.array(run(graph, n, {**inputs, **near})["x"])

    x = step("voice begin", mel=mel)
    made = []
    for i in range(len(DILATIONS)):
        h = step(f"voice block {i}", x=x)
        x = step(f"voice gate {i}", x=x, h=h, mean=_repeated(h.mean(0, np.float64), n))
        made.append(x)
    x = step("voice all", x=np.concatenate(made, 1))
    even = np.full((n, 1), 1 / n)
    scores = step("voice scores", x=x, statistics=_repeated(_statistics(x, even), n)).astype(np.float64)
    weights = np.exp(scores - scores.max(0))
    pooled = _statistics(x, weights / weights.sum(0))
    return np.array(run("voice row", 1, {"statistics": _repeated(pooled, 1)})["x"])


def log_mel(samples: Array, n_mels: int) -> Array:
    """Return the logarithms ``[n, n_mels]`` of the magnitudes of a sound on Slaney's mel scale."""
    padded = np.pad(samples, PAD, "reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, N_FFT)[::HOP]
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(N_FFT) / N_FFT)
    magnitudes = np.sqrt(np.abs(np.fft.rfft(frames * window)) ** 2 + LEAST_POWER)
    mel = np.log(np.maximum(magnitudes @ mel_filters(n_mels, RATE, N_FFT), FLOOR))
    return np.ascontiguousarray(mel, np.float32)


def _statistics(x: Array, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the weighted means and deviations over time of each channel, side by side."""
    mean = (weights * x).sum(0)
    variance = (weights * np.square(x - mean)).sum(0)
    return np.concatenate([mean, np.sqrt(np.maximum(variance, LEAST_VARIANCE))])


def _repeated(row: NDArray[np.float64], n: int) -> Array:
    return np.tile(row.astype(np.float32), (n, 1))


def _mirrored(rows: NDArray[Any], n: int) -> NDArray[np.int32]:
    """Return numbers of rows, mirrored at both ends."""
    rows = np.abs(rows)
    return np.clip(np.where(rows >= n, 2 * n - 2 - rows, rows), 0, n - 1).astype(np.int32)


def _row_at(distance: int) -> str:
    return f"row at {distance}"


def _convolved(g: GraphBuilder, x: Tensor, name: str, dilation: int = 1) -> Tensor:
    """Apply a convolution around each row, and keep what is positive; the ends are mirrored."""
    n_taps = int(g.weight(f"{name}.weight").shape[-1])
    distances = [(tap - n_taps // 2) * dilation for tap in range(n_taps)]
    taps = [g.get_rows(x, g.input(_row_at(d), (N_TOKENS,), "i32")) if d else x for d in distances]
    return g.relu(flat_linear(g, reduce(g.concat, taps), name))


def _rows(g: GraphBuilder, name: str, n: int) -> Tensor:
    return g.input(name, (N_TOKENS, n))


def _width(g: GraphBuilder, name: str) -> int:
    """Return the values that a convolution gives."""
    return int(g.weight(f"{name}.weight").shape[0])


def _build_begin(g: GraphBuilder, n_mels: int) -> None:
    g.output("x", _convolved(g, _rows(g, "mel", n_mels), "a.conv1d.0"))


def _build_block(g: GraphBuilder, i: int) -> None:
    """Convolve parts of the channels, each together with the result of the part before (Res2Net)."""
    blk = f"a.blk.{i + 1}."
    x = g.relu(blocks.linear(g, _rows(g, "x", _width(g, "a.conv1d.0")), f"{blk}conv_pw1"))
    size = blocks.width(x) // PARTS
    parts = [g.slice(x, part * size, (part + 1) * size) for part in range(PARTS)]
    for part in range(1, PARTS):
        y = parts[part] + parts[part - 1] if part > 1 else parts[part]
        parts[part] = _convolved(g, y, f"{blk}res2.{part - 1}", DILATIONS[i])
    g.output("x", g.relu(blocks.linear(g, reduce(g.concat, parts), f"{blk}conv_pw2")))


def _build_gate(g: GraphBuilder, i: int) -> None:
    """Weight channels by their means over time (squeeze and excitation), and add the block's input."""
    blk = f"a.blk.{i + 1}."
    x, h, mean = (_rows(g, name, _width(g, f"{blk}conv_pw2")) for name in ("x", "h", "mean"))
    gate = g.sigmoid(blocks.linear(g, g.relu(blocks.linear(g, mean, f"{blk}se_conv1")), f"{blk}se_conv2"))
    g.output("x", x + h * gate)


def _build_all(g: GraphBuilder) -> None:
    x = _rows(g, "x", len(DILATIONS) * _width(g, "a.blk.1.conv_pw2"))
    g.output("x", g.relu(blocks.linear(g, x, "a.conv_out")))


def _build_scores(g: GraphBuilder) -> None:
    n = _width(g, "a.conv_out")
    x = g.concat(_rows(g, "x", n), _rows(g, "statistics", 2 * n))
    g.output("x", blocks.linear(g, g.tanh(g.relu(blocks.linear(g, x, "a.asp_tdnn"))), "a.asp_attn"))


def _build_row(g: GraphBuilder) -> None:
    g.output("x", blocks.linear(g, _rows(g, "statistics", 2 * _width(g, "a.conv_out")), "mm.a.fc"))
