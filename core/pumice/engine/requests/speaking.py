"""Speeches: the rows of a step of the language model become a frame of sound, and what the next step reads."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock
from typing import ClassVar

import numpy as np

from pumice.engine.requests.reading import Kind, Reading, Rows
from pumice.errors import RequestError
from pumice.speech_model import AddedRows, LastRow, PromptRows, SpeechStep


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
