"""Readings of sounds: which part of a sound tokens attend to, as openai-whisper does, and speeches."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock
from typing import ClassVar, Final

import numpy as np

from pumice.engine.requests.reading import Kind, Reading, Rows
from pumice.errors import RequestError
from pumice.speech_model import AddedRows, LastRow, PromptRows, SpeechStep

WIDTH: Final = 7  # rows whose median replaces the middle one
_COMPARED: Final = (
    *((0, 5), (0, 3), (1, 6), (2, 4), (0, 1), (3, 5)),
    *((2, 6), (2, 3), (3, 6), (4, 5), (1, 4), (1, 3), (3, 4)),
)
"""Pairs of seven values which are put in order one after the other; the fourth one is then their median."""


@dataclass(eq=False)
class Alignment(Reading[Rows]):
    """Attention ``[len(tokens), n_rows]`` of tokens to rows of a sound, as deviations from each row's mean."""

    n_rows: int = 0
    rows: list[Rows] = field(default_factory=list)
    keys: list[Rows] = field(default_factory=list)
    kind: ClassVar[Kind] = "align"

    def take_keys(self, start: int, keys: Rows) -> None:
        """Take the keys ``[n, n_heads, k_dim]`` of rows from ``start`` on."""
        self.keys = [*(self.keys if start else ()), keys.copy()]

    def take(self, rows: Rows) -> None:
        self.rows.append(rows.copy())

    def value(self) -> Rows:
        return attention(np.concatenate(self.rows), np.concatenate(self.keys)[: self.n_rows])


def attention(queries: Rows, keys: Rows) -> Rows:
    """Return the mean attention of heads ``[n, m]``, for queries ``[n, n_heads, k]`` and keys ``[m, n_heads, k]``.

    A head's attention is given in deviations from its mean over the tokens, and smoothed by a median over rows.
    """
    scores = np.matmul(queries.swapaxes(0, 1), keys.transpose(1, 2, 0)) * np.float32(queries.shape[-1] ** -0.5)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    weights -= weights.mean(axis=1, keepdims=True)
    weights /= np.maximum(weights.std(axis=1, keepdims=True), 1e-9)
    mean: Rows = median(weights).mean(axis=0)
    return mean


def median(values: Rows) -> Rows:
    """Return the median of the ``WIDTH`` values around each one of the last axis, which is mirrored at its ends."""
    n = values.shape[-1]
    if n <= WIDTH // 2:
        return values
    padded = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(WIDTH // 2, WIDTH // 2)], "reflect")
    around = [padded[..., i : i + n] for i in range(WIDTH)]
    for i, j in _COMPARED:
        around[i], around[j] = np.minimum(around[i], around[j]), np.maximum(around[i], around[j])
    return around[WIDTH // 2]


@dataclass(eq=False)
class Speaking(Reading[int]):
    """A piece of a speech, whose tokens are -1 where the language model reads a row alone.

    Its value is the number of frames.

    Attributes:
        steps: makes the frames.
        graph: the graph of the language model that gives hidden states, and logits if they are wanted.
        width: values of a hidden state, and of a row of embeddings.
        making: held while frames are made, since those of several speeches share graphs.
        put: takes each frame.
    """

    steps: Generator[SpeechStep, LastRow, None] = field(kw_only=True)
    graph: str = field(kw_only=True)
    width: int = field(kw_only=True)
    making: Lock = field(kw_only=True)
    put: Callable[[Rows], None] = field(kw_only=True)
    n_frames: int = 0
    grows: ClassVar[bool] = True
    kind: ClassVar[Kind] = "speak"

    def __post_init__(self) -> None:
        self._rows: list[Rows] = []
        with self.making:
            self._follow(next(self.steps))
        super().__post_init__()

    def take(self, rows: Rows) -> None:
        """Make a frame of the row of the last position, and the next tokens."""
        row = rows[0].copy()
        with suppress(StopIteration), self.making:
            self._follow(self.steps.send(LastRow(row[: self.width], row[self.width :])))

    def value(self) -> int:
        return self.n_frames

    def added_rows(self, start: int, end: int) -> Rows:
        return np.stack(self._rows[start:end])

    def _follow(self, step: SpeechStep) -> None:
        if step.frame is not None:
            self.put(step.frame)
            self.n_frames += 1
        for part in step.parts:
            self._append(part)
        self.wanted, self.n_done = [len(self.tokens) - 1], 0

    def _append(self, part: PromptRows) -> None:
        """Append tokens, rows, or tokens to whose embeddings rows are added."""
        if isinstance(part, np.ndarray):
            tokens, rows = [-1] * len(part), part
        elif isinstance(part, AddedRows):
            tokens, rows = [*part.tokens], part.rows
        else:
            tokens, rows = [*part], np.zeros((len(part), self.width), np.float32)
        if rows.shape != (len(tokens), self.width):
            raise RequestError(
                f"speech: rows of {rows.shape[-1]} values, but the language model takes {self.width}; the projector's "
                "file belongs to another model"
            )
        self.tokens = [*self.tokens, *tokens]
        self._rows += [*rows]
