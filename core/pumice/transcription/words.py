"""When each word of a window is said: dynamic time warping of its tokens and the rows of the sound they attend to.

The decoder's heads that follow the speech attend to what is said with the next token, as openai-whisper describes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ROW_SECONDS: Final = 0.02
WITHOUT_SPACES: Final = ("zh", "ja", "th", "lo", "my", "yue")
"""Codes of languages whose words have no spaces between them: each character is a word."""
_BEFORE = "\"'“¿([{-"  # marks that belong to the word behind them
_AFTER = "\"'.。,，!！?？:：”)]}、"  # and those that belong to the word before them
_ENDS = ".。!！?？"  # of sentences
_MOST_MEDIAN = 0.7  # seconds of a usual word
_LOOSE = 0.5  # seconds that a word's time may be beyond its segment's


@dataclass(frozen=True)
class Word:
    """A word of a transcript, with its marks and the space before it.

    Attributes:
        start, end: seconds from the beginning of the sound.
        word: its text.
        probability: geometric mean of the probabilities of its tokens.
    """

    start: float
    end: float
    word: str
    probability: float

    @property
    def text(self) -> str:
        """The word, as the text of a subtitle."""
        return self.word


@dataclass
class Piece:
    """The tokens from ``first`` up to ``end`` of a window, which are a word or a mark."""

    text: str
    first: int
    end: int


def word_pieces(tokens: Sequence[int], spelled: Callable[[Sequence[int]], str], language: str) -> list[Piece]:
    """Return the words and marks of a text's tokens; a character is never cut."""
    made: list[Piece] = []
    start = 0
    for end in range(1, len(tokens) + 1):
        text = spelled(tokens[start:end])
        if "\ufffd" in text and end < len(tokens):
            continue
        if not made or text.startswith(" ") or language in WITHOUT_SPACES or _is_mark(text):
            made.append(Piece(text, start, end))
        else:
            made[-1].text, made[-1].end = made[-1].text + text, end
        start = end
    return made


def _is_mark(text: str) -> bool:
    return bool(text.strip()) and all(mark in _BEFORE + _AFTER for mark in text.strip())


def first_rows(attention: NDArray[np.floating]) -> NDArray[np.int64]:
    """Return the row at which each token begins, for attention ``[n_tokens, n_rows]``.

    The rows of tokens follow each other in the way along which attention is largest in sum. In each token's line a way
    begins below a row of the line before, or one behind it, and goes on to the right.
    """
    import numpy as np

    n, m = attention.shape
    rows = np.arange(m)
    begins, steps = np.zeros((n, m), np.int64), np.zeros((n, m), np.int64)
    before = np.full(m, -np.inf)
    for i, line in enumerate(attention.astype(np.float64)):
        sums = np.cumsum(line)
        diagonal = np.concatenate([[-np.inf if i else 0.0], before[:-1]])
        steps[i] = diagonal >= before
        gains = np.maximum(diagonal, before) - sums + line
        best = np.maximum.accumulate(gains)
        begins[i] = np.maximum.accumulate(np.where(gains == best, rows, 0))
        before = sums + best
    first, row = np.zeros(n, np.int64), m - 1
    for i in range(n - 1, -1, -1):
        first[i] = begins[i, row]
        row = max(first[i] - steps[i, first[i]], 0)
    return first


def timed(parts: Sequence[Piece], rows: Sequence[int], logprobs: Sequence[float]) -> list[tuple[int, Word]]:
    """Return words with the numbers of their first tokens; marks are joined to words and do not change their times.

    Args:
        parts: words and marks.
        rows: first row of each token, and of the end.
        logprobs: of each token.
    """
    made: list[tuple[int, Word]] = []
    opening = ""
    ends_sentence = False
    spans = [(rows[part.first] * ROW_SECONDS, rows[part.end] * ROW_SECONDS) for part in parts]
    longest = 2 * _usual(spans)
    for part, (start, end) in zip(parts, spans, strict=True):
        mark = part.text.strip()
        if _is_mark(part.text) and made and not (part.text.startswith(" ") and mark[0] in _BEFORE):
            number, word = made[-1]
            made[-1] = number, replace(word, word=word.word + part.text)
            ends_sentence = mark[-1] in _ENDS
            continue
        if _is_mark(part.text) and part is not parts[-1]:
            opening += part.text
            continue
        if end - start > longest and (ends_sentence or not made):
            start = end - longest  # the silence between sentences belongs to no word
        mean = sum(logprobs[part.first : part.end]) / (part.end - part.first)
        text = f"{opening}{part.text.lstrip()}" if opening else part.text
        made.append((part.first, Word(start, end, text, math.exp(min(mean, 0.0)))))
        opening, ends_sentence = "", False
    return made


def _usual(spans: Sequence[tuple[float, float]]) -> float:
    """Return the usual duration of a word."""
    return min(median([end - start for start, end in spans if end > start] or [0.0]), _MOST_MEDIAN)


def within(words: Sequence[Word], start: float, end: float) -> list[Word]:
    """Return the words of a segment; where its first or last one is far beyond the segment's times, these hold."""
    usual = _usual([(word.start, word.end) for word in words])
    kept = list(words)
    if kept and kept[0].start + _LOOSE < start < kept[0].end:
        kept[0] = replace(kept[0], start=max(0.0, min(kept[0].end - usual, start)))
    if kept and kept[-1].start < end < kept[-1].end - _LOOSE:
        kept[-1] = replace(kept[-1], end=max(kept[-1].start + usual, end))
    return kept
