"""Compare generation speed with llama-bench while other programs use the same cores.

    python bench/contention.py MODEL [--llama-bench PATH] [-t THREADS] [-n TOKENS] [-r REPETITIONS] [LOAD ...]

LOAD is a number of busy-looping processes. Both engines run in turns, REPETITIONS times per load. Prints the median of
tokens/s, with the minimum and the maximum.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator

import pumice
from pumice.evaluate.speed import generation_seconds

COUNT = "while True: pass"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("loads", nargs="*", type=int, default=[0, 1, 2, 4], metavar="LOAD")
    parser.add_argument("--llama-bench")
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("-n", "--tokens", type=int, default=32)
    parser.add_argument("-r", "--repetitions", type=int, default=5)
    arguments = parser.parse_intermixed_args()
    print("| other processes | Pumice | llama.cpp |\n| --- | --- | --- |")
    for load in arguments.loads:
        ours, theirs = [], []
        for _ in range(arguments.repetitions):
            with counting(load):
                ours.append(pumice_rate(arguments.model, arguments.threads, arguments.tokens))
                if arguments.llama_bench:
                    theirs.append(llama_rate(arguments))
        print(f"| {load} | {cell(ours)} | {cell(theirs)} |", flush=True)


@contextlib.contextmanager
def counting(n: int) -> Iterator[None]:
    """Run this many other processes, each of which occupies a core."""
    processes = [subprocess.Popen([sys.executable, "-c", COUNT]) for _ in range(n)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def pumice_rate(model: str, threads: int, n_tokens: int) -> float:
    with pumice.load(model, backend="cpu", n_ctx=512, config={"cpu": {"threads": threads}}) as loaded:
        generation_seconds(loaded, n_tokens)
        return n_tokens / generation_seconds(loaded, n_tokens)


def llama_rate(arguments: argparse.Namespace) -> float:
    """Measure llama-bench, whose warm-up has the same length as Pumice's."""
    sizes = ["-p", "0", "-n", str(arguments.tokens), "-t", str(arguments.threads), "-r", "1", "-o", "json"]
    command = [arguments.llama_bench, "-m", arguments.model, *sizes]
    results = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return float(results[0]["avg_ts"])


def cell(rates: list[float]) -> str:
    return f"{statistics.median(rates):.3g} ({min(rates):.3g} to {max(rates):.3g})" if rates else "-"


if __name__ == "__main__":
    main()
