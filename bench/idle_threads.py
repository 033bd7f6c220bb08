"""Measure CPU time of short requests with pauses between them; waiting threads should use little of it.

    python bench/idle_threads.py MODEL [-t THREADS] [--seconds SECONDS] [PAUSE ...]

PAUSE is in milliseconds. Prints requests per second, of four tokens each, and the number of busy cores in user and
system mode.
"""

from __future__ import annotations

import argparse
import os
import time

import pumice


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("pauses", nargs="*", type=float, default=[0, 3, 10, 30], metavar="PAUSE")
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=5, help="duration per pause in seconds")
    arguments = parser.parse_intermixed_args()
    config = {"cpu": {"threads": arguments.threads}}
    print("| pause, ms | requests/s | cores, user | cores, system |\n| --- | --- | --- | --- |")
    with pumice.load(arguments.model, backend="cpu", n_ctx=512, config=config) as model:
        ask(model)
        for pause in arguments.pauses:
            rate, user, system = measure(model, pause / 1000, arguments.seconds)
            print(f"| {pause:g} | {rate:.1f} | {user:.2f} | {system:.2f} |", flush=True)


def measure(model: pumice.Model, pause: float, seconds: float) -> tuple[float, float, float]:
    """Return requests per second, and CPU seconds per second in user and system mode."""
    before, n_requests = os.times(), 0
    while os.times().elapsed - before.elapsed < seconds:
        ask(model)
        time.sleep(pause)
        n_requests += 1
    after = os.times()
    elapsed = after.elapsed - before.elapsed
    return n_requests / elapsed, (after.user - before.user) / elapsed, (after.system - before.system) / elapsed


def ask(model: pumice.Model) -> None:
    model.generate("Once upon a time", max_tokens=4, temperature=0.0, ignore_eos=True)


if __name__ == "__main__":
    main()
