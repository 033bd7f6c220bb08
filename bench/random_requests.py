"""Random requests with speculative decoding and without: any difference is a defect, and is printed.

Sampler chains, grammars, stop strings, log-probabilities, adapters, several completions, shifted contexts, cancelled
streams and preempted sequences, for the demo model and tiny models of other kinds, over all proposers.

    python bench/random_requests.py 10000

A GPU rounds results differently in each batch, and so may texts differ without drafts: ``--control`` counts these.

    python bench/random_requests.py 900 --backend vulkan --batch-invariant --control
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from equal_texts import FURTHER, HEADS, MODELS, unequal  # tests/

ROUND = 50  # requests per loaded model
LENGTHS = [1, 4, 7, 10, -1]  # values of n_draft


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("n", type=int, nargs="?", default=1000, help="number of requests")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first round")
    every = ",".join([*MODELS, *FURTHER, *HEADS])
    parser.add_argument("--models", default=every, help="models and drafts, comma-separated")
    parser.add_argument("--choices", type=int, default=1, help="choices of proposers that answer each request")
    parser.add_argument("--table", help="file for the counts so far, written after each round")
    parser.add_argument("--threads", type=int, default=1, help="threads of the CPU backend")
    parser.add_argument("--backend", default="cpu", help="backend; vulkan needs a GPU, or PUMICE_VULKAN_SOFTWARE=1")
    parser.add_argument("--batch-invariant", action="store_true", help="set batch_invariant of a GPU's backend")
    parser.add_argument("--control", action="store_true", help="answer without drafts twice, in other batches")
    arguments = parser.parse_args()
    names = arguments.models.split(",")
    requests, drafted, accepted, wrong = Counter[str](), Counter[str](), Counter[str](), 0
    with tempfile.TemporaryDirectory() as folder:
        for number, begin in enumerate(range(0, arguments.n, ROUND)):
            name, seed = names[number % len(names)], arguments.seed + number
            n_draft, n = Random(seed).choice(LENGTHS), min(ROUND, arguments.n - begin)
            rounds = unequal(
                name,
                Path(folder),
                n,
                seed,
                arguments.threads,
                n_draft=n_draft,
                backend=arguments.backend,
                n_choices=arguments.choices,
                invariant=arguments.batch_invariant,
                control=arguments.control,
            )
            for request, choice, n_drafted, n_accepted in rounds:
                kind = f"{choice} ({name})" if name in HEADS else choice
                requests[kind] += 1
                drafted[kind] += n_drafted
                accepted[kind] += n_accepted
                if request:
                    wrong += 1
                    print(f"{name}, seed {seed}, {choice}, n_draft {n_draft}: {request}", flush=True)
            if arguments.table:
                Path(arguments.table).write_text(_table(requests, drafted, accepted, wrong))
    print(_table(requests, drafted, accepted, wrong))
    sys.exit(wrong > 0)


def _table(requests: Counter[str], drafted: Counter[str], accepted: Counter[str], wrong: int) -> str:
    rows = [f"| `{name}` | {requests[name]} | {drafted[name]} | {accepted[name]} |" for name in sorted(requests)]
    head = ["| proposers | answers | drafted | accepted |", "| --- | --- | --- | --- |"]
    return "\n".join([*head, *rows, "", f"{sum(requests.values())} answers, {wrong} different"])


if __name__ == "__main__":
    main()
