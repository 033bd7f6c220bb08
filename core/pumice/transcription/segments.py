"""Segments of a transcript, and where the tokens of times cut them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from pumice.transcription.vocabulary import STEP, TranscriptTokens
from pumice.transcription.words import Word


@dataclass(frozen=True)
class Segment:
    """A part of a transcript.

    Attributes:
        id: number of the segment, from 0.
        start, end: seconds from the beginning of the sound.
        text: what is said.
        tokens: token ids of the text and of its times.
        seek: second at which the window begins in which it was heard.
        temperature: that of the sampler.
        avg_logprob: mean of the log-probabilities of the window's tokens.
        compression_ratio: of the window's text; repetitions make it large.
        no_speech_prob: probability that nothing is said in the window.
        words: the words with their times; None unless they were asked for.
    """

    id: int
    start: float
    end: float
    text: str
    tokens: list[int]
    seek: float
    temperature: float
    avg_logprob: float
    compression_ratio: float
    no_speech_prob: float
    words: list[Word] | None = None


@dataclass(frozen=True)
class Cut:
    """Tokens of a window from a time to another one, with these; in seconds from its beginning."""

    start: float
    end: float
    tokens: list[int]


def cuts(tokens: Sequence[int], special: TranscriptTokens, duration: float) -> tuple[list[Cut], float]:
    """Return the cuts of a window's tokens, and the seconds after which the next window begins.

    A pair of times ends a cut. Text behind the last pair is heard again in the next window, unless one time ends it, or
    there is no pair: then the window is heard to its end of ``duration`` seconds.
    """

    def within(token: int) -> float:
        return min(max(special.seconds(token), 0.0), duration)

    is_time = [token >= special.first_time for token in tokens]
    ends = [i for i in range(1, len(tokens)) if is_time[i] and is_time[i - 1]]
    has_single_end = is_time[-2:] == [False, True]
    if not ends:
        times = [token for token in tokens if token > special.first_time]
        end = within(times[-1]) if times else duration
        first = within(tokens[0]) if tokens else 0.0
        return [Cut(min(first, end), end, list(tokens))], duration
    bounds = [0, *ends, *([len(tokens)] if has_single_end else [])]
    parts = [tokens[start:end] for start, end in pairwise(bounds)]
    made = [Cut(within(part[0]), within(part[-1]), list(part)) for part in parts]
    heard = duration if has_single_end else special.seconds(tokens[ends[-1] - 1])
    return made, heard if heard >= STEP else duration
