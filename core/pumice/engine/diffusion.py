"""Masked diffusion: a text begins as masks, and each step puts tokens where the model is surest of them.

Sahoo et al. 2024 (arXiv:2406.07524), Nie et al. 2025 (arXiv:2502.09992), Ye et al. 2025 (arXiv:2508.15487). What is
known from the left on is given as text. Schedules and their rounding are those of llama.cpp.
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

LENGTH = 128  # tokens of a text whose length nobody says
EPS = np.float32(1e-3)  # of the masks are left when the last step but one has been taken
TINY = np.float32(1e-10)  # so that logarithms are finite

Rows = NDArray[np.float32]
Asking = Generator[tuple[list[int], list[int]], Rows, None]
"""Gives a whole sequence and the rows whose logits it wants, and takes them."""


def fill(generation: Generation, masks: Masks) -> Asking:
    """Put tokens in place of masks, step by step; ``generation`` accepts those that are known from the left on."""
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
    for place in range(n_prompt, len(canvas)):  # what chance left over, where the algorithm is one of chance
        if canvas[place] == masks.token:
            logits = yield from _logits(canvas, [max(place - masks.shifted, 0)], n_prompt, masks.token, how.cfg_scale)
            canvas[place] = _choose(generation, logits[0], algorithm, random)[0]
    accept_known(generation, canvas, masks.token)
    generation.finish_reason = generation.finish_reason or ("length" if generation.n_left <= 0 else "context_full")


def accept_known(generation: Generation, canvas: Sequence[int], mask: int) -> None:
    """Accept tokens up to the first mask, or to the text's end."""
    while not generation.finish_reason and len(generation.tokens) < len(canvas):
        token = canvas[len(generation.tokens)]
        if token == mask:
            return
        generation.accept(token)


def schedule(n_prompt: int, n_new: int, n_steps: int, block_length: int | None) -> Iterator[tuple[range, Count]]:
    """For each step the places that it looks at, and how many of the masks there it fills.

    With blocks, one after the other is filled evenly; else each step leaves the share of masks that a clock says.
    """
    if block_length is None:
        for step in range(n_steps):
            yield range(n_prompt, n_prompt + n_new), Count(step, n_steps)
        return
    n_blocks = -(-n_new // block_length)
    steps = max(1, n_steps // n_blocks)
    for block in range(n_blocks):
        start = n_prompt + block * block_length
        places = range(start, min(start + block_length, n_prompt + n_new))
        for step in range(steps):
            yield places, Count(step, steps, evenly=len(places))


@dataclass(frozen=True)
class Count:
    """How many of the masks that are left a step fills. ``evenly``: so many shared out among all steps."""

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
    """``[len(rows), n_vocab]``; with a scale further away from those without the prompt (Ho and Salimans 2022)."""
    logits = yield list(canvas), rows
    if not cfg_scale:
        return _without_mask(logits, mask)
    without = yield [*[mask] * n_prompt, *canvas[n_prompt:]], rows
    return _without_mask(without + np.float32(cfg_scale + 1) * (logits - without), mask)


def _without_mask(logits: Rows, mask: int) -> Rows:
    """A mask is no token of a text."""
    logits[:, mask] = -np.inf
    return logits


def _choose(generation: Generation, row: Rows, algorithm: str, random: np.random.Generator) -> tuple[int, float]:
    """A token, by the sampler chain, and how sure it is among those that the chain left.

    A chain that always takes the likeliest leaves one: then it is among all of them.
    """
    left = generation.chain.apply(row)
    assert left is not None
    assert left.selected is not None
    if algorithm in ("origin", "random"):
        return left.selected, float(random.random())
    among = Candidates(row) if generation.chain.certain else left
    p = among.probabilities()
    if algorithm == "entropy":
        return left.selected, float(np.sum(p * np.log(p + TINY)))
    if algorithm == "margin":
        best = np.sort(p)[::-1]
        return left.selected, float(best[0] - best[1] if len(best) > 1 else best[0])
    return left.selected, float(p[among.positions(np.array([left.selected]))[0]])


@dataclass(eq=False)
class _Job:
    generation: Generation
    asking: Asking
    wanted: tuple[list[int], list[int]] | None = None


class Denoising:
    """The texts that an engine is to fill, a step of one at a time, in turns."""

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
        """End these, or all."""
        for job in list(self._jobs):
            if ids is None or job.generation.id in ids:
                job.generation.finish_reason = job.generation.finish_reason or "cancelled"
                self._end(job)

    def fail(self, error: Exception) -> None:
        """End all by an error."""
        self._events += [Failed(job.generation.id, error) for job in self._jobs]
        self._jobs.clear()

    def drain(self) -> list[Event]:
        """What happened since the last call."""
        events, self._events = self._events, []
        return events

    def step(self) -> None:
        """Compute one step of the text that waits longest. Where that fails, the text does."""
        job = self._jobs.pop(0)
        self._jobs.append(job)
        try:
            if job.wanted is None:
                job.generation.admitted(0)
                job.wanted = next(job.asking)
            else:
                job.wanted = job.asking.send(self._compute(*job.wanted, job.generation.adapter_scales))
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
        """Logits of these rows: a step gives so many, and more take the whole sequence again."""
        place = self._places.take_place(must=True)
        assert place is not None
        found, most = [], self._places.limits.n_outputs
        try:
            self._places.hold(place, 0, len(tokens), must=True)
            for first in range(0, len(rows), most):
                part = Part(place, tokens, 0, rows[first : first + most], scales)
                found.append(self._runner.run(batch_of(self._cache, [part])).copy())
        finally:
            self._places.give_back(place)
        return np.concatenate(found)

    def _end(self, job: _Job) -> None:
        self._jobs.remove(job)
        job.asking.close()
        self._events += job.generation.end()
