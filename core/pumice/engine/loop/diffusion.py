"""Masked diffusion: a text starts as masks, and each step fills those whose tokens the model is most certain of.

Sahoo et al. 2024 (arXiv:2406.07524), Nie et al. 2025 (arXiv:2502.09992), Ye et al. 2025 (arXiv:2508.15487). The filled
prefix is returned as text. Schedules and their rounding are those of llama.cpp.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from pumice.architecture import Masks
from pumice.engine.messages import EngineFinishReason, Event, Failed
from pumice.engine.requests.generation import Generation
from pumice.engine.requests.reading import Reading, ReadRequest
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
            canvas[place] = _choose(generation, logits[0], how.diffusion_algorithm, random)[0]
    accept_known(generation, canvas, masks.token)
    generation.finish_reason = generation.finish_reason or ("length" if generation.n_left <= 0 else "context_full")


def accept_known(generation: Generation, canvas: Sequence[int], mask: int) -> None:
    """Accept tokens up to the first mask or the text's end."""
    while not generation.finish_reason and len(generation.tokens) < len(canvas):
        token = canvas[len(generation.tokens)]
        if token == mask:
            return
        generation.accept(token)


def schedule(
    n_prompt: int, n_new: int, n_steps: int, block_length: int | None
) -> Iterator[tuple[range, Callable[[int], int]]]:
    """Yield each step's positions, and the number of masks to fill there.

    Blocks are filled evenly, one after the other; without blocks each step leaves a scheduled share of masks.
    """
    if block_length is None:
        for step in range(n_steps):
            yield range(n_prompt, n_prompt + n_new), partial(_fill_count, step, n_steps, 0)
        return
    n_blocks = -(-n_new // block_length)
    steps = max(1, n_steps // n_blocks)
    for block in range(n_blocks):
        start = n_prompt + block * block_length
        places = range(start, min(start + block_length, n_prompt + n_new))
        for step in range(steps):
            yield places, partial(_fill_count, step, steps, len(places))


def _fill_count(step: int, n_steps: int, evenly: int, n_masked: int) -> int:
    """Return the number of masks that a step fills, of ``n_masked``, or of ``evenly`` distributed over all steps."""
    if evenly:
        return evenly // n_steps + (step < evenly % n_steps)
    if step == n_steps - 1:
        return n_masked
    now, then = (np.float32(1) - np.float32(i) / n_steps * (1 - EPS) for i in (step, step + 1))
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
class Denoising(Reading[None]):
    """A generation by diffusion: each of its queries reads the whole sequence. Its events are the generation's."""

    generation: Generation = field(kw_only=True)
    asking: Asking = field(kw_only=True)
    rows: list[Rows] = field(default_factory=list)

    def take(self, rows: Rows) -> None:
        """Take the logits of a query's rows, and with the last of them ask the next query."""
        self.rows.append(rows.copy())
        if not self.done:
            return
        with suppress(StopIteration):
            self.tokens, self.wanted = self.asking.send(np.concatenate(self.rows))
            self.n_done, self.rows = 0, []

    def value(self) -> None: ...

    def events(self) -> list[Event]:
        return self.generation.output()

    def begin(self) -> None:
        if not self.request.begun:
            self.generation.begin()
        super().begin()

    def stop(self, reason: EngineFinishReason) -> list[Event]:
        self.generation.finish_reason = self.generation.finish_reason or reason
        self.request.n_left = 0
        return self.request.end()


def denoising(generation: Generation, masks: Masks) -> ReadRequest[None]:
    """Return the request of a generation by diffusion, with its first query."""
    request: ReadRequest[None] = ReadRequest(
        generation.id,
        lambda _: generation.end(),
        lambda error: Failed(generation.id, error),
        generation.terms,
    )
    asking = fill(generation, masks)
    with suppress(StopIteration):
        tokens, wanted = next(asking)
        Denoising(
            request,
            wanted,
            tokens=tokens,
            adapters=generation.adapters,
            arrived=generation.arrived,
            generation=generation,
            asking=asking,
        )
    return request
