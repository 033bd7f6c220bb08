"""Outputs of generated tokens: text that can be shown, and log-probabilities."""

from __future__ import annotations

from collections.abc import Container, Sequence

import numpy as np
from numpy.typing import NDArray

from pumice.backend.pick import Ahead, Pick, Raw
from pumice.engine.messages import Event, Logprobs, Output
from pumice.sampler import Candidates
from pumice.sampler.candidates import largest
from pumice.tokenizers import Tokenizer


class TextStream:
    """Converts one sequence's tokens to text incrementally; ends before the first of the ``stop`` strings.

    Without a tokenizer all text is empty. Control tokens are text only if they are in ``special``.
    """

    def __init__(self, tokenizer: Tokenizer | None, stop: Sequence[str], special: Container[int] = ()) -> None:
        self._decoder = tokenizer.decoder(special=special, continues=True) if tokenizer else None
        self._stop = [text for text in stop if text]
        self._held = ""
        self.stopped = False

    def push(self, token: int, stops: bool = True) -> str:
        """Return the text that is certain with this token; without ``stops`` no stop string begins or ends in it."""
        if self._decoder:
            self._held += self._decoder.push(token)
        if not stops:
            text, self._held = self._held, ""
            return text
        return self._release(final=False)

    def finish(self) -> str:
        """Return the remaining text after the last token."""
        if self._decoder and not self.stopped:
            self._held += self._decoder.flush()
        return self._release(final=True)

    def _release(self, final: bool) -> str:
        if not self._stop:
            text, self._held = self._held, ""
            return text
        positions = [self._held.find(stop) for stop in self._stop]
        ends = [position for position in positions if position >= 0]
        if ends:
            self.stopped = True
            text, self._held = self._held[: min(ends)], ""
            return text
        keep = 0 if final or self.stopped else self._possible_stop()
        cut = len(self._held) - keep
        text, self._held = self._held[:cut], self._held[cut:]
        return text

    def _possible_stop(self) -> int:
        """Return the length of the longest end of the held text that begins a stop string."""
        longest = max((len(stop) for stop in self._stop), default=0)
        for size in range(min(longest - 1, len(self._held)), 0, -1):
            if any(stop.startswith(self._held[-size:]) for stop in self._stop):
                return size
        return 0


class NewTokens:
    """Tokens that no event has reported, in lists of their own: tuples would make Python collect garbage."""

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._texts: list[str] = []
        self._logprobs: list[Logprobs] = []

    def add(self, token: int, text: str, logprobs: Logprobs | None) -> None:
        self._tokens.append(token)
        self._texts.append(text)
        if logprobs is not None:
            self._logprobs.append(logprobs)

    def take(self, id: int, has_logprobs: bool) -> list[Event]:
        """Return the event of the tokens since the last call, if any."""
        if not self._tokens:
            return []
        logprobs = tuple(self._logprobs) if has_logprobs else None
        output = Output(id, tuple(self._tokens), tuple(self._texts), logprobs)
        self.clear()
        return [output]

    def clear(self) -> None:
        for new in (self._tokens, self._texts, self._logprobs):
            new.clear()


# --- log-probabilities: of the model's logits, or of the sampler chain's remaining candidates


def log_totals(logits: NDArray[np.float32], selected: Sequence[bool]) -> NDArray[np.float64]:
    """Return float64 [n]: log(sum(exp(row))) of the selected rows of ``logits [n, n_vocab]``, 0 for the others."""
    result = np.zeros(len(selected))
    if any(selected):
        rows = logits[np.flatnonzero(selected)]
        peaks = rows.max(axis=1, keepdims=True)
        sums = np.exp(rows - peaks).sum(axis=1, dtype=np.float64)
        result[np.flatnonzero(selected)] = peaks[:, 0] + np.log(sums)
    return result


def raw_logprobs(logits: NDArray[np.float32], total: float, token: int, n_top: int) -> Logprobs:
    """Return the log-probability of a token by a row of logits and its total."""
    top = largest(logits, min(n_top, len(logits))).tolist()
    return Logprobs(float(logits[token] - total), [(other, float(logits[other] - total)) for other in top])


def found_logprobs(raw: Raw, step: int, row: int, n_top: int) -> Logprobs:
    """Return the log-probability of a token that a program picked, by its raw results."""
    total, ids = raw.totals[step, row], raw.ids[step, row, :n_top]
    top = raw.logits[step, row, :n_top] - total
    return Logprobs(float(raw.picked[step, row] - total), list(zip(ids.tolist(), top.tolist(), strict=True)))


def kept_logprobs(ahead: Ahead, step: int, row: int, pick: Pick, n_top: int) -> Logprobs:
    """Return the log-probability among the candidates that an exact ``Pick`` keeps, which include the picked token."""
    ids, logits = ahead.ids[step, row, : pick.top_k], ahead.logits[step, row, : pick.top_k].astype(np.float64)
    chosen = int(np.flatnonzero(ids == ahead.picked[step, row])[0])
    if pick.temperature == 0:
        return Logprobs(0.0, [(int(ids[chosen]), 0.0)][:n_top])
    weights = np.exp(logits - logits[0])
    n_kept = 1 + int(np.searchsorted(np.cumsum(weights), pick.top_p * weights.sum()))
    n_kept = max(chosen + 1, min(n_kept, int(np.count_nonzero(weights >= pick.min_p))))
    scaled = (logits[:n_kept] - logits[0]) / pick.temperature
    with np.errstate(divide="ignore"):
        probabilities = scaled - np.log(np.exp(scaled).sum())
    top = list(zip(ids[:n_kept].tolist(), probabilities.tolist(), strict=True))
    return Logprobs(top[chosen][1], top[:n_top])


def sampled_logprobs(candidates: Candidates, n_top: int, certain: bool) -> Logprobs:
    """Return the log-probability of a chain's selected candidate; ``certain``: no other could have been selected."""
    assert candidates.selected is not None
    if certain:
        return Logprobs(0.0, [(candidates.selected, 0.0)][:n_top])
    with np.errstate(divide="ignore"):
        logprobs = np.log(candidates.probabilities())
    top = candidates.top(n_top)
    chosen = logprobs[candidates.ids == candidates.selected]
    return Logprobs(float(chosen[0]), list(zip(candidates.ids[top].tolist(), logprobs[top].tolist(), strict=True)))
