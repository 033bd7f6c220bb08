"""Masked diffusion: a text starts as masks, and each step fills those whose tokens the model is most certain of.

Sahoo et al. 2024 (arXiv:2406.07524), Nie et al. 2025 (arXiv:2502.09992), Ye et al. 2025 (arXiv:2508.15487). The filled
prefix is returned as text. Schedules and their rounding are those of llama.cpp.
"""

from __future__ import annotations

from collections.abc import Container, Generator, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pumice.architecture import Masks
from pumice.engine.batches import Part, batch_of
from pumice.engine.encodings import Places
from pumice.engine.generation import Generation
from pumice.engine.kv_cache import KVCache
from pumice.engine.messages import Event, Failed
from pumice.engine.runner import Runner
from pumice.sampler.candidates import Candidates

LENGTH = 128  # default number of tokens
EPS = np.float32(1e-3)  # share of masks left before the last step
TINY = np.float32(1e-10)  # keeps logarithms finite

Rows = NDArray[np.float32]
Asking = Generator[tuple[list[int], list[int]], Rows, None]
"""Yields a whole sequence and the rows that need logits, and receives the logits."""


def fill(generation: Generation, masks: Masks) -> Asking:
    """Replace masks by tokens, step by step; ``generation`` accepts the filled prefix."""
    how, n_prompt = generation.request, len(generation.request.prompt)
    algorithm = how.diffusion_algorithm
    n_new = min(generation.n_left if generation.n_left < 1 << 32 else LENGTH, generation.n_ctx - n_prompt)
    canvas = [*generation.request.prompt, *[masks.token] * n_new]
    random = np.random.default_rng(generation.chain.seed)
    for places, count in schedule(n_prompt, n_new, how.diffusion_steps or n_new, how.block_length):
        masked = [place for place in places if canvas[place] == masks.token]
        n = count(len(masked))
        if not masked or n == 0:
            continue
        rows = [max(place - masks.shifted, 0) for place in masked]
        logits = yield from _logits(canvas, rows, n_prompt, masks.token, how.cfg_scale)
        tokens, sureness = zip(
            *(_choose(generation, row, how.diffusion_algorithm, random) for row in logits), strict=True
        )
        if how.diffusion_algorithm == "origin":
            chosen = np.flatnonzero(random.random(len(masked)) < n / len(masked))
        else:
            chosen = np.argsort(-np.array(sureness), kind="stable")[:n]
        for i in chosen:
            canvas[masked[i]] = tokens[i]
        accept_known(generation, canvas, masks.token)
        if generation.finish_reason:
            return
    for place in range(n_prompt, len(canvas)):  # masks that a random algorithm has left
        if canvas[place] == masks.token:
            logits = yield from _logits(canvas, [max(place - masks.shifted, 0)], n_prompt, masks.token, how.cfg_scale)
            canvas[place] = _choose(generation, logits[0], algorithm, random)[0]
    accept_known(generation, canvas, masks.token)
    generation.finish_reason = generation.finish_reason or ("length" if generation.n_left <= 0 else "context_full")


def accept_known(generation: Generation, canvas: Sequence[int], mask: int) -> None:
    """Accept tokens up to the first mask or the text's end."""
    while not generation.finish_reason and len(generation.tokens) < len(canvas):
        token = canvas[len(generation.tokens)]
        if token == mask:
            return
        generation.accept(token)


def schedule(n_prompt: int, n_new: int, n_steps: int, block_length: int | None) -> Iterator[tuple[range, FillCount]]:
    """Yield each step's positions, and the number of masks to fill there.

    Blocks are filled evenly, one after the other; without blocks each step leaves a scheduled share of masks.
    """
    if block_length is None:
        for step in range(n_steps):
            yield range(n_prompt, n_prompt + n_new), FillCount(step, n_steps)
        return
    n_blocks = -(-n_new // block_length)
    steps = max(1, n_steps // n_blocks)
    for block in range(n_blocks):
        start = n_prompt + block * block_length
        places = range(start, min(start + block_length, n_prompt + n_new))
        for step in range(steps):
            yield places, FillCount(step, steps, evenly=len(places))


@dataclass(frozen=True)
class FillCount:
    """The number of masks that a step fills. ``evenly``: the masks are distributed evenly over all steps."""

    step: int
    n_steps: int
    evenly: int = 0

    def __call__(self, n_masked: int) -> int:
        if self.evenly:
            return self.evenly // self.n_steps + (self.step < self.evenly % self.n_steps)
        if self.step == self.n_steps - 1:
            return n_masked
        now, then = (np.float32(1) - np.float32(i) / self.n_steps * (1 - EPS) for i in (self.step, self.step + 1))
        return int(np.float32(n_masked) * (np.float32(1) - then / now))


def _logits(
    canvas: Sequence[int], rows: list[int], n_prompt: int, mask: int, cfg_scale: float
) -> Generator[tuple[list[int], list[int]], Rows, Rows]:
    """Return logits ``[len(rows), n_vocab]``, with classifier-free guidance by ``cfg_scale`` (Ho and Salimans 2022)."""
    logits = yield list(canvas), rows
    if not cfg_scale:
        return _without_mask(logits, mask)
    without = yield [*[mask] * n_prompt, *canvas[n_prompt:]], rows
    return _without_mask(without + np.float32(cfg_scale + 1) * (logits - without), mask)


def _without_mask(logits: Rows, mask: int) -> Rows:
    """Exclude the mask token, which is not a token of texts."""
    logits[:, mask] = -np.inf
    return logits


def _choose(generation: Generation, row: Rows, algorithm: str, random: np.random.Generator) -> tuple[int, float]:
    """Return a token chosen by the sampler chain, and its certainty among the remaining candidates.

    A greedy chain leaves a single candidate; then the certainty is that among all tokens.
    """
    remaining = generation.chain.apply(row)
    assert remaining is not None
    assert remaining.selected is not None
    if algorithm in ("origin", "random"):
        return remaining.selected, float(random.random())
    among = Candidates(row) if generation.chain.certain else remaining
    p = among.probabilities()
    if algorithm == "entropy":
        return remaining.selected, float(np.sum(p * np.log(p + TINY)))
    if algorithm == "margin":
        best = np.sort(p)[::-1]
        return remaining.selected, float(best[0] - best[1] if len(best) > 1 else best[0])
    return remaining.selected, float(p[among.positions(np.array([remaining.selected]))[0]])


@dataclass(eq=False)
class _Job:
    generation: Generation
    asking: Asking
    query: tuple[list[int], list[int]] | None = None


class Denoising:
    """The texts that an engine fills, one step of each in turn."""

    def __init__(self, runner: Runner, cache: KVCache, places: Places, masks: Masks) -> None:
        self._runner, self._cache, self._places, self._masks = runner, cache, places, masks
        self._jobs: list[_Job] = []
        self._events: list[Event] = []

    @property
    def busy(self) -> bool:
        return bool(self._jobs)

    def add(self, generation: Generation) -> None:
        self._jobs.append(_Job(generation, fill(generation, self._masks)))

    def cancel(self, ids: Container[int] | None) -> None:
        """Cancel these requests, or all."""
        for job in list(self._jobs):
            if ids is None or job.generation.id in ids:
                job.generation.finish_reason = job.generation.finish_reason or "cancelled"
                self._end(job)

    def fail(self, error: Exception) -> None:
        """Fail all requests with an error."""
        self._events += [Failed(job.generation.id, error) for job in self._jobs]
        self._jobs.clear()

    def drain(self) -> list[Event]:
        """Return the events since the last call."""
        events, self._events = self._events, []
        return events

    def step(self) -> None:
        """Compute one step of the text that waits longest. On an error that text fails."""
        job = self._jobs.pop(0)
        self._jobs.append(job)
        try:
            if job.query is None:
                job.generation.admitted(0)
                job.query = next(job.asking)
            else:
                job.query = job.asking.send(self._compute(*job.query, job.generation.adapter_scales))
            self._events += job.generation.output()
        except StopIteration:
            self._end(job)
        except Exception as error:
            self._jobs.remove(job)
            self._events.append(Failed(job.generation.id, error))
            raise
        if job in self._jobs and job.generation.is_late:
            job.generation.finish_reason = "timeout"
            self._end(job)

    def _compute(self, tokens: list[int], rows: list[int], scales: Sequence[float]) -> Rows:
        """Return the logits of these rows; beyond a step's outputs the whole sequence is computed again."""
        place = self._places.take_place(must=True)
        assert place is not None
        parts, n_outputs = [], self._places.limits.n_outputs
        try:
            self._places.hold(place, 0, len(tokens), must=True)
            for first in range(0, len(rows), n_outputs):
                part = Part(place, tokens, 0, rows[first : first + n_outputs], scales)
                parts.append(self._runner.run(batch_of(self._cache, [part])).copy())
        finally:
            self._places.give_back(place)
        return np.concatenate(parts)

    def _end(self, job: _Job) -> None:
        self._jobs.remove(job)
        job.asking.close()
        self._events += job.generation.end()
