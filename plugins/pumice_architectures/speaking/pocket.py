"""Pocket TTS (Kyutai 2026): a language model of continuous frames (arXiv:2509.06926) with the codec Mimi.

A flow network turns noise and the language model's hidden state into the next frame, whose row the language model reads
next. The codec (Défossez et al. 2024, arXiv:2410.00037) makes sound of frames, and the rows of a voice from sound.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Generator, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import N_TOKENS, GraphBuilder, HParams, RequestError, Tensor
from pumice.plugin.nn import blocks
from pumice.plugin.unstable import (
    GraphRuns,
    LastRow,
    PromptRows,
    SpeechGraph,
    SpeechModel,
    SpeechStep,
    SpeechTask,
    SpeechVocabulary,
    SpokenText,
)
from pumice_architectures.speaking.convolution import (
    Inputs,
    Rate,
    convolved,
    elu,
    flat_linear,
    rates,
    strided,
    strided_inputs,
    transposed,
    transposed_inputs,
)
from pumice_architectures.speaking.sentences import pieces_of

Array = NDArray[np.float32]

RATE = 24_000
RATIOS = (6, 5, 4)  # of the decoder's transposed convolutions; the encoder has them in reverse
ROW = math.prod(RATIOS)  # samples of a row of the codec's transformers
STRIDE = 16  # such rows of a frame
FRAMES_A_SECOND = RATE / (ROW * STRIDE)
REACH = 250  # rows to which a row attends
CONTEXT = 10  # rows before a window, which convolutions see: at least 8 in the decoder and 4 in the encoder
WINDOW = 8  # frames that are decoded at once
VOICE_WINDOW = 240  # rows of a voice that are encoded at once
TAPS = 7  # of the first convolution of samples
SHIFTS = {1: (6, 5, 4, 3, 2, 1), 6: (2, 1), 30: (2, 1), 120: (2, 1)}  # of rows, by rows of a row
EPS, FLOW_EPS, TIME_EPS = 1e-5, 1e-6, 1e-5
FREQ_BASE = 10_000.0
END_SCORE = -4.0  # above which a speech ends
LEAST_FRAMES = 6  # whose scores of the end are ignored
MOST_FRAMES = 1500  # of a piece
N_CTX = STRIDE * (MOST_FRAMES + WINDOW)
FADE = RATE // 200  # samples at the beginning of a piece, which grow louder
PAUSE, FADE_OUT, PART = 0.08, 0.02, 0.02  # seconds: of silence behind a voice, of its end, and of a part of it
FLOOR = 10 ** (-35 / 20)  # of the loudest part of a voice; parts below it are silence
AFTER_SHORT, AFTER = 5, 3  # frames after the end of a piece
SHORT_WORDS = 4
N_VALUES = 32  # of a frame


class PocketTTS(SpeechModel):
    samples_per_frame: ClassVar = ROW * STRIDE
    window: ClassVar = WINDOW
    default_temperature: ClassVar = 0.3

    def __init__(self, hparams: HParams, voice: HParams | None) -> None:
        super().__init__(hparams, voice)
        self.tower = Tower(hparams, "a.gen.wav.tfm.blk.")
        self.ears = Tower(voice, "a.blk.") if voice else None
        self.most_voice_frames = int(self.max_voice_seconds * FRAMES_A_SECOND) + 2

    @classmethod
    def pieces(cls, text: str, vocabulary: SpeechVocabulary, language: str = "", speaker: str = "") -> list[SpokenText]:
        if language:
            raise RequestError("language: this model was trained for one language; leave it out")
        begin, voice = (vocabulary.find(f"<|{name}|>") for name in ("audio_bos", "bos_before_voice"))
        if begin is None:
            raise RequestError("this model does not speak: its vocabulary has no token <|audio_bos|>")
        spoken = []
        for piece, tokens in pieces_of(text, vocabulary):
            most = math.ceil((len(tokens) / 3 + 2) * FRAMES_A_SECOND)
            after = AFTER_SHORT if len(piece.split()) <= SHORT_WORDS else AFTER
            before = [] if voice is None else [voice]
            spoken.append(SpokenText(piece, [*tokens, begin], before, min(most, MOST_FRAMES), after))
        return spoken

    def graphs(self) -> Mapping[str, SpeechGraph]:
        decoded = STRIDE * WINDOW
        graphs = {
            "frame": SpeechGraph(self._build_frame, 1),
            "rows": SpeechGraph(self._build_rows, decoded, N_CTX),
            "samples": SpeechGraph(self._build_samples, decoded + CONTEXT),
        }
        if self.ears:
            graphs |= {
                "voice": SpeechGraph(self._build_voice, VOICE_WINDOW + CONTEXT),
                "voice rows": SpeechGraph(self._build_voice_rows, VOICE_WINDOW, self.most_voice_frames * STRIDE),
                "voice frames": SpeechGraph(self._build_voice_frames, self.most_voice_frames),
            }
        return graphs

    # --- frames

    def frames(self, run: GraphRuns, task: SpeechTask) -> Generator[SpeechStep, LastRow, None]:
        parts: list[PromptRows] = [task.text.tokens]
        if task.voice is not None:
            parts = [task.text.before_voice, task.voice, *parts]
        hidden, _ = yield SpeechStep(parts)
        spread, last = np.float32(math.sqrt(task.temperature)), task.text.max_frames
        for i in range(task.text.max_frames):
            noise = task.random.standard_normal((1, N_VALUES), np.float32) * spread
            made = run("frame", 1, {"hidden": hidden[None], "noise": noise})
            if i >= LEAST_FRAMES and float(made["end"][0, 0]) > END_SCORE:
                last = min(last, i + task.text.n_after)
            if i >= last:
                return
            hidden, _ = yield SpeechStep([np.array(made["row"])], np.array(made["frame"][0]))

    def _build_frame(self, g: GraphBuilder) -> None:
        hidden = g.input("hidden", (N_TOKENS, self.width))
        noise = g.input("noise", (N_TOKENS, N_VALUES))
        frame = noise + self._flow(g, hidden, noise)
        g.output("end", blocks.linear(g, hidden, "a.gen.out_eos", 1))
        g.output("frame", frame)
        g.output("row", blocks.linear(g, frame, "a.gen.input_linear", self.width))

    def _flow(self, g: GraphBuilder, hidden: Tensor, x: Tensor) -> Tensor:
        """Return the flow from noise to a frame, by Lagrangian self-distillation (arXiv:2505.18825) in one step."""
        n = int(g.weight("a.gen.flow.input_proj.weight").shape[0])
        y = blocks.linear(g, hidden, "a.gen.flow.cond_embd", n) + self._times(g, n)
        y, x = g.silu(y), blocks.linear(g, x, "a.gen.flow.input_proj", n)
        i = 0
        while g.find_weight(f"a.gen.flow.blk.{i}.norm.weight"):
            name = f"a.gen.flow.blk.{i}."
            shift, scale, gate = self._modulation(g, y, f"{name}ada", n, 3)
            h = blocks.layer_norm(g, x, f"{name}norm", FLOW_EPS)
            h = h + h * scale + shift
            h = blocks.linear(g, g.silu(blocks.linear(g, h, f"{name}up", n)), f"{name}down", n)
            x = x + gate * h
            i += 1
        shift, scale = self._modulation(g, y, "a.gen.flow.final.ada", n, 2)
        h = g.layer_norm(x, None, None, FLOW_EPS)
        return blocks.linear(g, h + h * scale + shift, "a.gen.flow.final.proj", N_VALUES)

    def _modulation(self, g: GraphBuilder, y: Tensor, name: str, n: int, n_parts: int) -> list[Tensor]:
        parts = blocks.linear(g, y, name, n * n_parts)
        return [g.slice(parts, i * n, (i + 1) * n) for i in range(n_parts)]

    def _times(self, g: GraphBuilder, n: int) -> Tensor:
        """Return ``[n]``: the mean of what stands for the times at which the flow begins and ends, 0 and 1."""
        names = ("freqs", "up.weight", "up.bias", "down.weight", "down.bias", "norm")
        weights = [g.weight(f"a.gen.flow.time.{i}.{name}") for i in range(2) for name in names]
        return g.derived("a.gen.flow.times", (n,), _mean_of_times, *weights)

    # --- the decoder

    def decoder(self, run: GraphRuns) -> Decoder:
        return Decoder(run)

    def _build_rows(self, g: GraphBuilder) -> None:
        """Make rows of frames: denormalize, project, repeat by a transposed convolution of each channel, attend."""
        n = self.tower.n_embd
        normal = g.input("frames", (g.size("n_frames", WINDOW + 1), N_VALUES))
        frames = normal * g.weight("a.gen.emb_std", (N_VALUES,)) + g.weight("a.gen.emb_mean", (N_VALUES,))
        x = blocks.linear(g, frames, "a.gen.wav.quant_out", n)
        kernel = g.weight("a.gen.wav.upsample.weight", (n, 2 * STRIDE))
        taps = g.derived("a.gen.wav.upsample, by taps", (2 * STRIDE, n), _columns_first, kernel)
        now, before = (g.get_rows(x, g.input(name, (N_TOKENS,), "i32")) for name in ("now", "before"))
        x = now * g.embedding(taps, g.input("tap", (N_TOKENS,), "i32"))
        late = g.embedding(taps, g.input("late tap", (N_TOKENS,), "i32")) * g.input("has before", (N_TOKENS, 1))
        g.output("rows", self.tower.attended(g, x + before * late))

    def _build_samples(self, g: GraphBuilder) -> None:
        x: Tensor = g.input("rows", (N_TOKENS, self.tower.n_embd))
        levels, name = rates(STRIDE * WINDOW + CONTEXT, RATIOS), "a.gen.wav.seanet."
        x = convolved(g, x, f"{name}conv_in", levels[0])
        for i, (low, high) in enumerate(itertools.pairwise(levels)):
            x = transposed(g, elu(g, x), f"{name}blk.{i}.scale_conv", low, high)
            x = residual(g, x, f"{name}blk.{i}.", high)
        x = convolved(g, elu(g, x), f"{name}conv_out", levels[-1])
        g.output("samples", g.clamp(x, -1.0, 1.0))

    # --- the encoder of voices

    def voice(self, run: GraphRuns, samples: Array) -> Array:
        if self.ears is None:
            raise RequestError("voice: this model's file has no encoder of voices")
        samples = ending_in_pause(samples[: int(self.max_voice_seconds * RATE)])
        n_frames = -(-len(samples) // self.samples_per_frame)
        samples = np.pad(samples, (0, n_frames * self.samples_per_frame - len(samples)))
        run.begin("voice rows")
        parts, n_rows = [], n_frames * STRIDE
        for start in range(0, n_rows, VOICE_WINDOW):
            n = min(VOICE_WINDOW, n_rows - start)
            before = min(start, CONTEXT)
            heard = _heard(samples, start - before, n + before)
            rows = run("voice", n + before, heard)["rows"][before:]
            parts.append(np.array(run("voice rows", n, {"rows": np.array(rows)})["rows"]))
        rows = np.concatenate([np.repeat(parts[0][:1], STRIDE, 0), *parts])
        taps = np.lib.stride_tricks.sliding_window_view(rows, 2 * STRIDE, 0)[::STRIDE].transpose(0, 2, 1)
        made = run("voice frames", n_frames, {"taps": np.ascontiguousarray(taps.reshape(n_frames, -1))})
        return np.array(made["rows"])

    def _build_voice(self, g: GraphBuilder) -> None:
        levels, name = rates(VOICE_WINDOW + CONTEXT, RATIOS), "a.seanet."
        x = flat_linear(g, g.input("samples", (levels[-1].size(g), TAPS)), f"{name}conv_in")
        for i, (low, high) in enumerate(list(itertools.pairwise(levels))[::-1]):
            x = residual(g, x, f"{name}blk.{i}.", high)
            x = strided(g, elu(g, x), f"{name}blk.{i}.scale_conv", high, low)
        g.output("rows", convolved(g, elu(g, x), f"{name}conv_out", levels[0]))

    def _build_voice_rows(self, g: GraphBuilder) -> None:
        assert self.ears
        g.output("rows", self.ears.attended(g, g.input("rows", (N_TOKENS, self.ears.n_embd))))

    def _build_voice_frames(self, g: GraphBuilder) -> None:
        assert self.ears
        x = flat_linear(g, g.input("taps", (N_TOKENS, 2 * STRIDE * self.ears.n_embd)), "a.downsample.conv")
        g.output("rows", blocks.linear(g, x, "a.speaker_proj", self.width))


class Tower:
    """A causal transformer over the codec's rows, which attend to the latest ``REACH`` rows."""

    def __init__(self, hparams: HParams, prefix: str) -> None:
        self.prefix = prefix
        self.n_embd = hparams.positive("embedding_length")
        self.n_layer = hparams.count("block_count", 0)
        self.n_head, self.n_ff = hparams.positive("attention.head_count"), hparams.positive("feed_forward_length")
        self.eps = hparams.number("attention.layer_norm_epsilon")
        if self.n_embd % (2 * self.n_head):
            raise hparams.wrong("attention.head_count", f"is {self.n_head}, which does not divide {self.n_embd}")
        d = self.n_embd // self.n_head
        self.freqs = tuple(float(FREQ_BASE ** (-2 * i / d)) for i in range(d // 2))

    def attended(self, g: GraphBuilder, x: Tensor) -> Tensor:
        for i in range(self.n_layer):
            with g.layer(i):
                blk = f"{self.prefix}{i}."
                y = self._attention(g, blocks.layer_norm(g, x, f"{blk}ln1", self.eps), blk)
                x = x + y * g.weight(f"{blk}ls1.weight", (self.n_embd,))
                y = blocks.feed_forward(g, blocks.layer_norm(g, x, f"{blk}ln2", self.eps), blk, self.n_ff, g.gelu)
                x = x + y * g.weight(f"{blk}ls2.weight", (self.n_embd,))
        return x

    def _attention(self, g: GraphBuilder, x: Tensor, blk: str) -> Tensor:
        shape = N_TOKENS, self.n_head, self.n_embd // self.n_head
        q, k, v = (blocks.linear(g, x, f"{blk}attn_{name}", self.n_embd).reshape(*shape) for name in "qkv")
        q, k = (g.rope(y, g.positions, freqs=self.freqs, neox=False) for y in (q, k))
        y = g.attention(q, k, v, scale=shape[2] ** -0.5, window=REACH)
        return blocks.linear(g, y.reshape(N_TOKENS, self.n_embd), f"{blk}attn_out", self.n_embd)


class Decoder:
    """Turns the frames of a speech into samples, from the state that earlier frames left."""

    def __init__(self, run: GraphRuns) -> None:
        self._run = run
        self._frame: Array | None = None  # the last one
        self._rows: Array | None = None  # the last ones, at most ``CONTEXT``
        run.begin("rows")

    def decode(self, frames: Array) -> Array:
        is_first, n = self._frame is None, STRIDE * len(frames)
        before = frames[:1] if self._frame is None else self._frame[None]
        rows = np.arange(n, dtype=np.int32)
        ones = np.ones((n, 1), np.float32)
        inputs: Inputs = {
            "frames": np.concatenate([before, frames]),
            "now": rows // STRIDE + 1,
            "before": rows // STRIDE,
            "tap": rows % STRIDE,
            "late tap": rows % STRIDE + STRIDE,
            "has before": np.where(rows[:, None] < STRIDE, 0, ones).astype(np.float32) if is_first else ones,
        }
        made = np.array(self._run("rows", n, inputs)["rows"])
        context = made if self._rows is None else np.concatenate([self._rows, made])
        samples = self._samples(context)[-n * ROW :]
        self._frame, self._rows = frames[-1], context[-CONTEXT:]
        if is_first:
            samples[:FADE] *= np.linspace(0, 1, FADE, dtype=np.float32)[: len(samples)]
        return samples

    def _samples(self, rows: Array) -> Array:
        inputs: Inputs = {"rows": rows}
        levels = rates(len(rows), RATIOS)
        for low, high in itertools.pairwise(levels):
            inputs |= low.shifts(len(rows), SHIFTS[low.factor])
            inputs |= transposed_inputs(len(rows), low, high)
        inputs |= levels[-1].shifts(len(rows), SHIFTS[levels[-1].factor])
        return np.array(self._run("samples", len(rows), inputs)["samples"]).reshape(-1)


def residual(g: GraphBuilder, x: Tensor, name: str, rate: Rate) -> Tensor:
    """Apply SEANet's residual block (Tagliasacchi et al. 2020, arXiv:2009.02095)."""
    h = convolved(g, elu(g, x), f"{name}res_conv1", rate)
    return x + convolved(g, elu(g, h), f"{name}res_conv2", rate)


def ending_in_pause(samples: Array) -> Array:
    """Return a voice that ends in a pause, since the model goes on with what a voice has begun to say.

    The silence at its end is cut off, what remains is faded out, and a short silence follows.
    """
    n = int(PART * RATE)
    parts = samples[: len(samples) // n * n].reshape(-1, n)
    if not len(parts):
        return samples
    loudness = np.sqrt(np.square(parts, dtype=np.float32).mean(1)) + np.float32(1e-12)
    end = (int(np.flatnonzero(loudness > loudness.max() * FLOOR)[-1]) + 1) * n
    fade = min(int(FADE_OUT * RATE), end)
    kept = samples[:end].copy()
    kept[end - fade :] *= np.linspace(1, 0, fade, dtype=np.float32)
    return np.pad(kept, (0, int(PAUSE * RATE)))


def _heard(samples: Array, start: int, n: int) -> Inputs:
    """Return the inputs of the encoder's convolutions for ``n`` rows from row ``start`` on."""
    first, last = start * ROW, (start + n) * ROW
    around = np.pad(samples, (TAPS - 1, 0))[first : last + TAPS - 1]
    inputs: Inputs = {"samples": np.ascontiguousarray(np.lib.stride_tricks.sliding_window_view(around, TAPS))}
    levels = rates(n, RATIOS)
    for low, high in itertools.pairwise(levels):
        inputs |= high.shifts(n, (2, 1)) | strided_inputs(n, high, low)
    return inputs | levels[0].shifts(n, (2, 1))


def _mean_of_times(*weights: Any) -> Array:
    first, last = (_time(time, *weights[i : i + 6]) for time, i in ((0.0, 0), (1.0, 6)))
    mean: Array = ((first + last) / 2).astype(np.float32)
    return mean


def _time(time: float, freqs: Any, up: Any, up_bias: Any, down: Any, down_bias: Any, norm: Any) -> NDArray[np.float64]:
    """Return what stands for a time: two layers over its sines, divided by their deviation."""
    angles = time * np.asarray(freqs, np.float64).reshape(-1)
    x = np.concatenate([np.cos(angles), np.sin(angles)])
    x = up.astype(np.float64) @ x + up_bias.reshape(-1)
    x = down.astype(np.float64) @ (x / (1 + np.exp(-x))) + down_bias.reshape(-1)
    scaled: NDArray[np.float64] = x * norm.reshape(-1) / np.sqrt(x.var(ddof=1) + TIME_EPS)
    return scaled


def _columns_first(matrix: Array) -> Array:
    return np.ascontiguousarray(matrix.T)
