"""Compare the generation speed of two checkouts in alternating pairs of short runs, to cancel a machine's drift.

    python bench/compare_checkouts.py MODEL BEFORE AFTER [--starts 6] [--pairs 24] [-n 16] [--parallel 64]

BEFORE and AFTER are checkouts, each with Pumice installed in its ``.venv``. Every start loads the model in a process
of each; the process that is not measured is stopped. Prints the median and quartiles of the pairs' ratios: the speed of
AFTER as a multiple of BEFORE's.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

# Runs in each checkout. Older ones have ``pumice.measure``, or ``model.bench_generation``.
WORKER = """
import functools, importlib, sys
import pumice
n_parallel = int(sys.argv[2])
options = {"backend": "cpu", "n_ctx": 512 if n_parallel == 1 else 128 * n_parallel}
if n_parallel > 1:
    options["config"] = {"n_parallel": n_parallel}
model = pumice.load(sys.argv[1], **options)
seconds = getattr(model, "bench_generation", None)
for module in ("pumice.evaluate.speed", "pumice.measure") if seconds is None else ():
    try:
        speed = importlib.import_module(module)
    except ModuleNotFoundError:
        continue
    if n_parallel == 1:
        seconds = functools.partial(speed.generation_seconds, model)
    else:
        seconds = lambda n: speed.parallel_seconds(model, 32, n, n_parallel)[1]
    break
seconds(8)
print(flush=True)
for line in sys.stdin:
    print(seconds(int(line)), flush=True)
"""


class Worker:
    """A checkout's process with the model loaded, stopped except for its turns."""

    def __init__(self, checkout: Path, model: str, n_parallel: int) -> None:
        command = [str(checkout / ".venv/bin/python"), "-c", WORKER, model, str(n_parallel)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._answer()
        self._process.send_signal(signal.SIGSTOP)

    def seconds(self, n_tokens: int) -> float:
        assert self._process.stdin
        self._process.send_signal(signal.SIGCONT)
        print(n_tokens, file=self._process.stdin, flush=True)
        seconds = float(self._answer())
        time.sleep(0.01)  # lets its threads go idle
        self._process.send_signal(signal.SIGSTOP)
        return seconds

    def close(self) -> None:
        self._process.send_signal(signal.SIGCONT)
        self._process.communicate()

    def _answer(self) -> str:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            sys.exit(f"{self._process.args[0]} exited; see its output above")  # type: ignore[index]
        return line


def ratios(args: argparse.Namespace, after_first: bool) -> list[float]:
    """Return the speed of the second checkout relative to the first for each pair.

    The order of loads and of runs alternates.
    """
    checkouts = {"before": args.before, "after": args.after}
    names = sorted(checkouts, reverse=not after_first)
    workers = {name: Worker(checkouts[name], args.model, args.parallel) for name in names}
    pair_ratios = []
    for i in range(args.pairs):
        seconds = {name: workers[name].seconds(args.n_gen) for name in (names if i % 2 else names[::-1])}
        pair_ratios.append(seconds["before"] / seconds["after"])
    for worker in workers.values():
        worker.close()
    return pair_ratios


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model")
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--starts", type=int, default=6)
    parser.add_argument("--pairs", type=int, default=24)
    parser.add_argument("-n", "--n-gen", type=int, default=16)
    parser.add_argument("--parallel", type=int, default=1, help="number of sequences, each after 32 random tokens")
    args = parser.parse_args()
    measured = []
    for start in range(args.starts):
        part = ratios(args, bool(start % 2))
        print(f"start {start}: {statistics.median(part):.3f}", flush=True)
        measured += part
    low, middle, high = statistics.quantiles(measured, n=4)
    print(
        f"{len(measured)} pairs of {args.n_gen} tokens, after/before: {middle:.3f} (quartiles {low:.3f} to {high:.3f})"
    )


if __name__ == "__main__":
    main()
