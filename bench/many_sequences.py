"""Measure what many sequences cost an engine beside their computation: their admission, and their steps.

    python bench/many_sequences.py [-n SEQUENCES ...] [-r ROUNDS]

A program that computes nothing gives the logits. Prints the processor time of an engine for each sequence that it
admits in one step, and for each sequence of a later step: the median of ROUNDS.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from guessing_programs import GREEDY, N_VOCAB, Cells, Runner, request  # tests/
from pumice.backend.step import Limits, Step
from pumice.engine import Engine, Preparer
from pumice.engine.requests.generation import Generation
from pumice_samplers import SAMPLERS

STEPS = 20  # of sequences that are all admitted
IDS = count()


class Nothing(Cells):
    """Gives the same logits to every row."""

    def run(self, step: Step) -> Mapping[str, Any]:
        return {"logits": np.tile(np.arange(N_VOCAB, dtype=np.float32), (len(step.batch.output_ids), 1))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, nargs="*", default=[32, 128, 512], metavar="SEQUENCES")
    parser.add_argument("-r", "--rounds", type=int, default=5)
    arguments = parser.parse_args()
    for n in arguments.n:
        rounds = [measure(n) for _ in range(arguments.rounds)]
        admission, step = (statistics.median(times) / n * 1e6 for times in zip(*rounds, strict=True))
        print(f"{n} sequences: admission {admission:.1f} us, step {step:.1f} us for each", flush=True)


def measure(n: int) -> tuple[float, float]:
    """Return the seconds of the step that admits ``n`` sequences, beyond those of a later step; and of the latter."""
    limits = Limits(128, 4 * n, n, n, 32, {0: 4 * n}, "f32", {})
    engine = Engine(Runner(Nothing(steps=0), limits))
    prepare = Preparer(limits.n_ctx, N_VOCAB, lambda: None, SAMPLERS, list(SAMPLERS))
    for _ in range(n):
        engine.add(_generation(prepare))
    times = []
    for _ in range(1 + STEPS):
        began = time.thread_time()
        engine.step()
        engine.drain()
        times.append(time.thread_time() - began)
    step = statistics.median(times[1:])
    return times[0] - step, step


def _generation(prepare: Preparer) -> Generation:
    id = next(IDS)
    (generation,) = prepare.generations([id], request([5 + id % 40, 6, 7], GREEDY, 100))
    return generation


if __name__ == "__main__":
    main()
