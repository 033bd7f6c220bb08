"""Qwen3-TTS (Qwen 2026, arXiv:2601.15621): a language model of codes, 12.5 frames of 16 a second, with their codec.

The language model gives the first code of a frame. A small transformer predicts the others, one after the other, from
its hidden state, and the sum of their embeddings is what the language model reads next.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import N_TOKENS, GraphBuilder, HParams, ModelError, RequestError
from pumice.plugin.nn import blocks
from pumice.plugin.unstable import (
    AddedRows,
    GraphRuns,
    LastRow,
    SpeechGraph,
    SpeechModel,
    SpeechStep,
    SpeechTask,
    SpeechVocabulary,
    SpokenText,
)
from pumice_architectures.speaking.qwen_codec import FRAME, MOST_FRAMES, WINDOW, CodecDecoder, Layers, codec_graphs
from pumice_architectures.speaking.qwen_voice import voice_graphs, voice_row
from pumice_architectures.speaking.sentences import MOST_CHARACTERS

Array = NDArray[np.float32]

N_CODES = 16  # of a frame
BOOK = 2048  # codes of a codebook
N_FIRST = 3072  # first codes, of which those behind the first codebook steer
FREQ_BASE = 1_000_000.0
TOP_K = 50  # codes of which one is drawn
PENALTY = 1.05  # of first codes that occurred before
LEAST_FRAMES = 2
FRAMES_A_TOKEN, FRAMES_AROUND = 16, 50  # at most
SILENT = ("think", "think_bos", "think_eos", "pad", "bos", "eos_token", "nothink")  # codes that steer
TEXTS = ("tts_pad", "tts_text_bos", "tts_text_eod")


class Qwen3TTS(SpeechModel):
    samples_per_frame: ClassVar = FRAME
    window: ClassVar = WINDOW
    default_temperature: ClassVar = 0.9
    reads_logits: ClassVar = True

    def __init__(self, hparams: HParams, voice: HParams | None) -> None:
        super().__init__(hparams, voice)
        self.n_embd = hparams.positive("embedding_length")
        n_head = hparams.positive("attention.head_count")
        self.layers = Layers(
            "a.gen.code.blk.",
            hparams.count("block_count", 0),
            n_head,
            hparams.count("attention.head_count_kv", n_head),
            FREQ_BASE,
            hparams.number("attention.layer_norm_epsilon"),
        )
        if n_head % self.layers.n_head_kv:
            raise hparams.wrong("attention.head_count_kv", f"does not divide the {n_head} heads")
        self.n_mels = voice.positive("num_mel_bins") if voice else 0

    @classmethod
    def has_speaker(cls, name: str, vocabulary: SpeechVocabulary) -> bool:
        return vocabulary.find(f"<|spk_{name.lower()}|>") is not None

    @classmethod
    def pieces(cls, text: str, vocabulary: SpeechVocabulary, language: str = "", speaker: str = "") -> list[SpokenText]:
        text = text.strip()
        if len(text) > MOST_CHARACTERS:
            raise RequestError(f"speech: the text has {len(text)} characters; at most {MOST_CHARACTERS} are supported")
        if not any(char.isalnum() for char in text):
            raise RequestError("speech: the text has no words")
        first = _id(vocabulary, "<|codec_0|>")
        code = {name: _id(vocabulary, f"<|codec_{name}|>") - first for name in SILENT}
        pad, begin, end = (_id(vocabulary, f"<{name}>") for name in TEXTS)
        thoughts = [code["nothink"], code["think_bos"], code["think_eos"]]
        if language:
            spoken = vocabulary.find(f"<|codec_language_{language.lower()}|>")
            if spoken is None:
                raise RequestError(f"language: the model does not know {language!r:.60}; give a name such as 'english'")
            thoughts = [code["think"], code["think_bos"], spoken - first, code["think_eos"]]
        if speaker:
            thoughts.append(_id(vocabulary, f"<|spk_{speaker.lower()}|>") - first)
        role = [_id(vocabulary, "<|im_start|>"), *vocabulary.encode("assistant\n")]
        words = vocabulary.encode(text)
        most = min(MOST_FRAMES, FRAMES_AROUND + FRAMES_A_TOKEN * len(words))
        return [
            SpokenText(
                text,
                [begin, *words, end, pad],
                role + [pad] * len(thoughts),
                most,
                0,
                [-1] * len(role) + thoughts + [code["pad"]] * (len(words) + 2) + [code["bos"]],
                code["eos_token"],
            )
        ]

    def graphs(self) -> Mapping[str, SpeechGraph]:
        graphs = {
            "first rows": SpeechGraph(self._build_first_rows, 64),
            "code": SpeechGraph(self._build_code, 2, N_CODES),
            "row": SpeechGraph(self._build_row, 1),
            **codec_graphs(N_CODES, BOOK),
        }
        return {**graphs, **voice_graphs(self.n_mels, self.max_voice_seconds)} if self.n_mels else graphs

    # --- frames

    def frames(self, run: GraphRuns, task: SpeechTask) -> Generator[SpeechStep, LastRow, None]:
        text = task.text
        _check(text)
        rows = self._added(run, text.codes)
        n, pad = len(text.before_voice), text.tokens[-1]
        parts = [AddedRows(text.before_voice, rows[:n]), AddedRows(text.tokens, rows[n:])]
        if task.voice is not None:
            parts.insert(1, AddedRows([pad] * len(task.voice), task.voice))
        hidden, logits = yield SpeechStep(parts)
        earlier: set[int] = set()
        for i in range(text.max_frames):
            code = self._first_code(logits, earlier, i < LEAST_FRAMES, task)
            if code == text.end:
                return
            earlier.add(code)
            codes, row = self._others(run, hidden, code, task)
            hidden, logits = yield SpeechStep([AddedRows([pad], row)], np.array(codes, np.float32))

    def _added(self, run: GraphRuns, codes: list[int]) -> Array:
        """Return the rows of codes; zeros for -1."""
        ids = np.array(codes, np.int32)
        parts = [
            np.array(run("first rows", len(part), {"codes": np.maximum(part, 0)})["rows"])
            for part in np.split(ids, range(64, len(ids), 64))
        ]
        return np.where(ids[:, None] < 0, np.float32(0), np.concatenate(parts))

    def _first_code(self, logits: Array, earlier: set[int], must_go_on: bool, task: SpeechTask) -> int:
        end = task.text.end
        scores = logits[-N_FIRST:].astype(np.float64)
        said = list(earlier)
        scores[said] *= np.where(scores[said] < 0, PENALTY, 1 / PENALTY)
        ending = scores[end]
        scores[BOOK:] = -np.inf
        scores[end] = -np.inf if must_go_on else ending
        return _drawn(scores, task)

    def _others(self, run: GraphRuns, hidden: Array, first: int, task: SpeechTask) -> tuple[list[int], Array]:
        """Return the codes of a frame whose first one is known, and the sum ``[1, width]`` of their embeddings."""
        row = np.array(run("first rows", 1, {"codes": np.array([first], np.int32)})["rows"])
        codes, none = [first], np.zeros((1, self.width), np.float32)
        run.begin("code")
        inputs = _code_inputs(np.concatenate([hidden[None], row]), [0, 0], [0, 0], 0.0)
        for k in range(N_CODES - 1):
            scores = run("code", len(inputs["given"]), inputs)["logits"][-1, 0]
            codes.append(_drawn(scores.astype(np.float64), task))
            inputs = _code_inputs(none, [k * BOOK + codes[-1]], [min(k + 1, N_CODES - 2)], 1.0)
        others = np.array([codes[1:]], np.int32) + np.arange(N_CODES - 1, dtype=np.int32) * np.int32(BOOK)
        return codes, row + run("row", 1, {"codes": others})["rows"]

    def _build_first_rows(self, g: GraphBuilder) -> None:
        table = g.weight("a.gen.code.out_embd.weight", (N_FIRST, self.width))
        g.output("rows", g.embedding(table, g.input("codes", (N_TOKENS,), "i32")))

    def _build_row(self, g: GraphBuilder) -> None:
        codes = g.input("codes", (N_TOKENS, N_CODES - 1), "i32")
        g.output("rows", g.sum(g.embedding(g.all_rows("a.gen.code.embd.weight"), codes), axis=-2))

    def _build_code(self, g: GraphBuilder) -> None:
        """Predict the next code from given rows and from codes, one position each."""
        heads = g.weight("a.gen.code.head.weight", (N_CODES - 1, BOOK, self.n_embd))
        g.weight("a.gen.code.embd.weight", (N_CODES - 1, BOOK, self.width))
        x = g.embedding(g.all_rows("a.gen.code.embd.weight"), g.input("codes", (N_TOKENS,), "i32"))
        x = x * g.input("is code", (N_TOKENS, 1)) + g.input("given", (N_TOKENS, self.width))
        if g.find_weight("a.gen.code.proj_in.weight"):
            x = blocks.linear(g, x, "a.gen.code.proj_in", self.n_embd)
        elif self.width != self.n_embd:
            raise ModelError("tensor a.gen.code.proj_in.weight is missing from the file")
        x = blocks.rms_norm(g, self.layers.attended(g, x), "a.gen.code.output_norm", self.layers.eps)
        g.output("logits", g.mul_mat_id(x, heads, g.input("head", (N_TOKENS, 1), "i32")))

    # --- sounds

    def decoder(self, run: GraphRuns) -> CodecDecoder:
        return CodecDecoder(run, N_CODES, BOOK)

    def voice(self, run: GraphRuns, samples: Array) -> Array:
        if not self.n_mels:
            raise RequestError("voice: this model's file has no encoder of voices")
        return voice_row(run, samples[: int(self.max_voice_seconds * 24_000)], self.n_mels)


def _check(text: SpokenText) -> None:
    """Raise RequestError for codes that are none of the model's, or not as many as tokens."""
    fits = len(text.codes) == len(text.before_voice) + len(text.tokens) and text.tokens
    if not fits or not all(-1 <= code < N_FIRST for code in (*text.codes, text.end)):
        raise RequestError("speech: the codes of the prompt do not fit its tokens or the model")


def _id(vocabulary: SpeechVocabulary, token: str) -> int:
    id = vocabulary.find(token)
    if id is None:
        raise RequestError(f"this model does not speak: its vocabulary has no token {token}")
    return id


def _code_inputs(given: Array, codes: list[int], heads: list[int], is_code: float) -> dict[str, NDArray[np.generic]]:
    n = len(given)
    return {
        "given": given,
        "codes": np.array(codes, np.int32),
        "head": np.array(heads, np.int32)[:, None],
        "is code": np.full((n, 1), is_code, np.float32),
    }


def _drawn(scores: NDArray[np.float64], task: SpeechTask) -> int:
    """Return one of the ``TOP_K`` codes of the highest scores, at temperature 0 the first."""
    if not np.isfinite(scores.max()):
        raise RequestError("speech: a score is not a finite number; the model's file may be damaged")
    if not task.temperature:
        return int(scores.argmax())
    best = np.argsort(-scores, kind="stable")[:TOP_K]
    weights = np.exp((scores[best] - scores[best[0]]) / task.temperature)
    place = int(np.searchsorted(weights.cumsum(), task.random.random() * weights.sum(), "right"))
    return int(best[min(place, len(best) - 1)])
