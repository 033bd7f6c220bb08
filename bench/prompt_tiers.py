"""Time the first token after a long prompt: computed, loaded from host memory, and loaded from disk after a restart.

    python bench/prompt_tiers.py MODEL [--tokens 32768] [--turns 3] [--backend cpu]

The three are measured in turns. The files of the disk tier are in the page cache unless --drop is given (Linux).
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import pumice


def first_token(model: pumice.Model, prompt: list[int]) -> tuple[float, int]:
    """Return the seconds until the first token, and the number of cached tokens."""
    began = time.perf_counter()
    completion = model.generate(prompt, max_tokens=1, temperature=0)
    return time.perf_counter() - began, completion.timings.prompt_cached


def drop_pages(folder: Path) -> None:
    """Let the system forget the contents of files."""
    for path in folder.rglob("*-*"):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=32768)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--drop", action="store_true", help="read the files from the disk, not from the page cache")
    arguments = parser.parse_args()
    rng = random.Random(1)
    options: dict[str, Any] = {"backend": arguments.backend, "n_ctx": arguments.tokens + 64, "n_parallel": 1}
    seconds: dict[str, list[float]] = {"computed": [], "memory": [], "disk": []}
    for _ in range(arguments.turns):
        with tempfile.TemporaryDirectory() as folder:
            tiers = {"cache_disk": folder, "cache_ram": 1 << 16}
            with pumice.load(arguments.model, **options, **tiers) as model:
                prompt, other = ([rng.randrange(model.n_vocab) for _ in range(arguments.tokens)] for _ in "ab")
                seconds["computed"].append(first_token(model, prompt)[0])
                model.generate(other[: arguments.tokens], max_tokens=1, temperature=0)
                spent, n_cached = first_token(model, prompt)
                assert n_cached >= arguments.tokens - 32, n_cached
                seconds["memory"].append(spent)
            if arguments.drop:
                drop_pages(Path(folder))
            with pumice.load(arguments.model, **options, cache_disk=folder) as model:
                first_token(model, [1] * 40)  # kernels and pages of the weights
                spent, n_cached = first_token(model, prompt)
                assert n_cached >= arguments.tokens - 32, n_cached
                seconds["disk"].append(spent)
    for name, values in seconds.items():
        share = statistics.median(values) / statistics.median(seconds["computed"])
        shown = " ".join(f"{value:.2f}" for value in values)
        print(f"{name:10} {statistics.median(values):8.2f} s  {share:7.2%}  ({shown})")


if __name__ == "__main__":
    main()
