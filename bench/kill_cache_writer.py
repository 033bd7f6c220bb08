"""Kill a process while it writes prompts to disk, many times: remaining files are valid, and written prompts stay.

    python bench/kill_cache_writer.py MODEL [--kills 200]

A child generates from ever new prompts with ``cache_disk``. It is killed (SIGKILL) after a random time, and the next
one begins with the prompt of which the killed one said last that it is on disk. The text must be that of a model
without the tier, and each whole block must come from the folder.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pumice

LENGTH, N_CACHED = 70, 64  # tokens of a prompt, and those in whole blocks
OPTIONS: dict[str, Any] = {"n_ctx": 96, "n_batch": 96, "n_parallel": 1, "backend": "numpy"}


def prompt_of(number: int, n_vocab: int) -> list[int]:
    rng = random.Random(number)
    return [rng.randrange(n_vocab) for _ in range(LENGTH)]


def tokens_of(model: pumice.Model, number: int) -> tuple[int, list[int]]:
    """Return how many tokens of a prompt were cached, and the generated ones."""
    completion = model.generate(prompt_of(number, model.n_vocab), max_tokens=4, temperature=0)
    return completion.timings.prompt_cached, list(completion.tokens)


def write(path: str, folder: str, first: int) -> None:
    """Generate until killed; say each prompt's tokens, and then that it is on disk."""

    def turns(engine: Any) -> Iterator[None]:
        while engine.tiers.busy or not engine.tiers.written(60):
            yield engine.tiers.write_behind(idle=True)

    with pumice.load(path, cache_disk=folder, **OPTIONS) as model:
        for number in range(first, first + 10**6):
            n_cached, tokens = tokens_of(model, number)
            print("read", number, n_cached, *tokens, flush=True)
            model.engine.thread.call(turns)
            print("written", number, flush=True)


def lines_until_killed(path: str, folder: str, first: int, seconds: float) -> list[list[str]]:
    """Run a child, kill it ``seconds`` after its first line, and return its whole lines."""
    command = [sys.executable, __file__, path, "--write", folder, "--first", str(first)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    began = child.stdout.readline()
    time.sleep(seconds)
    child.send_signal(signal.SIGKILL)
    rest = child.stdout.read()
    if child.wait() != -signal.SIGKILL:
        sys.exit(f"a child ended by itself, with status {child.returncode}")
    return [line.split() for line in (began + rest).splitlines(keepends=True) if line.endswith("\n")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", metavar="FOLDER", help=argparse.SUPPRESS)
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.write:
        write(arguments.model, arguments.write, arguments.first)
        return
    rng, last, n_written, n_left = random.Random(arguments.seed), 0, 0, 0
    with tempfile.TemporaryDirectory() as folder, pumice.load(arguments.model, **OPTIONS) as model:
        for kill in range(arguments.kills):
            lines = lines_until_killed(arguments.model, folder, last, rng.random() * 0.3)
            if kill and lines and int(lines[0][2]) != N_CACHED:
                sys.exit(f"kill {kill}: prompt {last} was written, and {lines[0][2]} of its tokens were found")
            for _, number, _, *tokens in (line for line in lines if line[0] == "read"):
                if list(map(int, tokens)) != tokens_of(model, int(number))[1]:
                    sys.exit(f"kill {kill}: prompt {number} has other tokens than without the tier")
            written = [int(line[1]) for line in lines if line[0] == "written"]
            n_written += len(written)
            last = max(written, default=last)
        n_left = sum(1 for _ in Path(folder).glob("*/tmp*"))
    print(f"{arguments.kills} kills, {n_written} prompts written, none lost, none wrong; {n_left} unfinished files")


if __name__ == "__main__":
    main()
