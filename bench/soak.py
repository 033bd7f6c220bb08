"""Run 64 clients of one model for an hour: mixed lengths, half of them cancelled, bursts beyond the queue's limit.

    python bench/soak.py [--seconds 3600] [--clients 64] [--threads 1] [MODEL]

Writes sixty lines of progress to standard error, and JSON at the end. The exit status is 1 if a text differs from the
same request alone, if a block or a slot leaked, if anything was allocated, or if memory grew.
"""

import argparse
import json
import sys
from pathlib import Path

import soaking

import pumice
from pumice.demo import demo_model_path

MEMORY = 16 * 2**20  # allowed growth in bytes from the second to the last quarter: fragmentation of malloc


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1, help="threads of the CPU backend")
    parser.add_argument("model", nargs="?", type=Path, default=demo_model_path())
    arguments = parser.parse_args()
    settings = {"backend": "cpu", "cpu": {"threads": arguments.threads}}
    n_vocab = pumice.load_tokenizer(arguments.model).n_vocab

    def watch(held: soaking.Held, tally: soaking.Tally) -> None:
        counts = f"{tally.finished} finished, {tally.cancelled} cancelled, {tally.refused} refused"
        memory = f"{held.memory / 2**20:.1f} MiB, {held.threads} threads"
        print(f"{held.seconds:7.1f} s  {memory}, {counts}, {len(tally.wrong)} wrong", file=sys.stderr, flush=True)

    cases = soaking.cases(arguments.model, n_vocab, settings)
    outcome = soaking.soak(arguments.model, cases, arguments.clients, arguments.seconds, settings, watch)
    tally, samples = outcome.tally, outcome.held
    report = {"seconds": arguments.seconds, "clients": arguments.clients, **vars(tally), "wrong": len(tally.wrong)}
    report |= {"examples": [repr(item) for item in tally.wrong[:3]], "lost": outcome.lost}
    report |= {"memory_mib": [round(item.memory / 2**20, 1) for item in samples], "grown": soaking.grown(samples)}
    report |= {"allocated": samples[-1].arenas - samples[0].arenas}
    print(json.dumps(report, indent=1))
    return int(bool(tally.wrong or outcome.lost or report["allocated"] or report["grown"] > MEMORY))


if __name__ == "__main__":
    sys.exit(main())
