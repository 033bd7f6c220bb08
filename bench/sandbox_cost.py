"""Measure what the sandbox costs `pumice run`: pairs with and without it, alternately, as medians of ratios.

    python bench/sandbox_cost.py --seconds 600

Run it on a quiet machine with PYTHONDONTWRITEBYTECODE unset: without compiled modules the start takes twice as long.
"""

from __future__ import annotations

import argparse
import random
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import count

CASES = {
    "start and 8 tokens": ["-n", "8"],
    "start and 400 tokens": ["-n", "400", "--set", "sampling.logit_bias={1: -100}"],  # without the end of the text
}
COMMON = ["-p", "Once upon a time", "--backend", "cpu", "--temp", "0", "-t", "1"]
KINDS = ("processor time", "time")
N_DRAWS = 4000


def measured(options: Sequence[str]) -> tuple[float, float]:
    """Return the processor time and the time of a command, in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "pumice", "run", *COMMON, *options], check=True, capture_output=True)
    seconds = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, seconds


def interval(values: Sequence[float]) -> str:
    """Return the median with its 95 % interval by resampling."""
    draw = random.Random(1)
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(N_DRAWS))
    low, high = medians[N_DRAWS // 40], medians[-N_DRAWS // 40]
    return f"{statistics.median(values):.4f} ({low:.4f} to {high:.4f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="time after which no pair begins")
    end = time.monotonic() + parser.parse_args().seconds
    switches = ([], ["--no-sandbox"])
    pairs: dict[str, list[tuple[tuple[float, float], ...]]] = {case: [] for case in CASES}
    for case in CASES:  # fill the caches, which the sandbox keeps apart
        for switch in switches:
            measured([*CASES[case], *switch])
    for turn in count():
        if turn and time.monotonic() >= end:
            break
        for case, options in CASES.items():
            order = (0, 1) if turn % 2 else (1, 0)
            taken = {i: measured([*options, *switches[i]]) for i in order}
            pairs[case].append((taken[0], taken[1]))
    for case, measurements in pairs.items():
        for i, kind in enumerate(KINDS):
            ratios = [confined[i] / free[i] for confined, free in measurements]
            seconds = statistics.median(free[i] for _, free in measurements)
            print(f"{case}: {kind} {interval(ratios)}, {seconds:.3f} s without the sandbox, {len(measurements)} pairs")


if __name__ == "__main__":
    main()
