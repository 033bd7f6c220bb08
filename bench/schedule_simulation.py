"""Simulate ``FairPolicy`` to measure the effects of ``max_delay``; steps have the timing of a model on a CPU.

    python bench/schedule_simulation.py [--base 19 --token 1.73 --least 25]

A step takes ``--base`` milliseconds plus ``--token`` for each prompt token, but at least ``--least``.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from pumice.engine.loop import policy as schedule

SLOTS, ROOM, SECONDS = 16, 512, 600.0  # concurrent sequences, tokens per step, seconds of arrivals
DELAYS = (0.2, 0.1, 0.07, 1e9)  # the last one reads a prompt in one step

clock = SimpleNamespace(now=0.0)
schedule.time = SimpleNamespace(perf_counter=lambda: clock.now)  # type: ignore[assignment, attr-defined]


@dataclass(eq=False)
class Simulated:
    """A sequence as the policy sees it, and the times of its tokens."""

    asked: float
    pending: int
    n_left: int
    priority: int = 0
    last_step: int = 0
    began: float | None = None
    admitted: float = 0.0
    waits_since: float = 0.0
    times: list[float] = field(default_factory=list)

    @property
    def reads_on(self) -> bool:
        return self.pending > 1


def run(delay: float, arrivals: Sequence[float], n_prompt: int, n_generate: int, costs: Any) -> list[Simulated]:
    """Return all sequences after the last has ended."""
    policy, rng = schedule.FairPolicy(delay), random.Random(0)
    clock.now = 0.0
    coming = [Simulated(asked, n_prompt, n_generate, waits_since=asked) for asked in sorted(arrivals)]
    every, running, n_steps = list(coming), list[Simulated](), 0
    while coming or running:
        while coming and len(running) < SLOTS and coming[0].asked <= clock.now:
            running.append(coming.pop(0))
            running[-1].admitted = clock.now
        if not running:
            clock.now = coming[0].asked
            continue
        members: Any = policy.share(running, ROOM)  # type: ignore[arg-type]
        n_read = sum(n for sequence, n in members if sequence.began is None)
        seconds = max(costs.least, costs.base + costs.token * n_read) / 1000 * rng.uniform(0.95, 1.1)
        clock.now, n_steps = clock.now + seconds, n_steps + 1
        policy.took(members, seconds)
        for sequence, n in members:
            sequence.pending, sequence.last_step = sequence.pending - n, n_steps
            if not sequence.pending:
                sequence.began = sequence.began or clock.now
                sequence.times.append(clock.now)
                sequence.pending, sequence.n_left = 1, sequence.n_left - 1
        running = [sequence for sequence in running if sequence.n_left]
    return every


def poisson(rate: float) -> list[float]:
    rng, arrivals = random.Random(1), [0.0]
    while arrivals[-1] < SECONDS:
        arrivals.append(arrivals[-1] + rng.expovariate(rate))
    return arrivals


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", type=float, default=19.0)
    parser.add_argument("--token", type=float, default=1.73)
    parser.add_argument("--least", type=float, default=25.0)
    arguments = parser.parse_args()
    loads = {f"{rate} requests/s of {n} to 64": (poisson(rate), n) for rate, n in ((0.4, 128), (1, 128), (0.6, 512))}
    for title, (arrivals, n_prompt) in {**loads, "64 requests at once of 128 to 64": ([0.0] * 64, 128)}.items():
        print(f"\n{title}: tokens/s; first token, p50 and p99; between tokens, p99 and maximum, ms")
        for delay in DELAYS:
            done = run(delay, arrivals, n_prompt, 64, arguments)
            firsts = sorted(1000 * (sequence.times[0] - sequence.asked) for sequence in done)
            gaps = sorted(
                1000 * (b - a) for sequence in done for a, b in zip(sequence.times, sequence.times[1:], strict=False)
            )
            tokens = sum(len(sequence.times) for sequence in done) / clock.now
            numbers = [tokens, firsts[len(firsts) // 2], firsts[len(firsts) * 99 // 100]]
            numbers += [gaps[len(gaps) * 99 // 100], gaps[-1]]
            print(f"{delay if delay < 1 else 'whole':>6}", *(f"{number:10,.1f}" for number in numbers))


if __name__ == "__main__":
    main()
