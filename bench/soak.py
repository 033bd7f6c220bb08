"""64 clients of one model for an hour: mixed lengths, half of them cancelled, bursts beyond the queue's bound.

    python bench/soak.py [--seconds 3600] [--clients 64] [--threads 1] [MODEL]

Sixty lines on standard error meanwhile, at the end JSON. The exit status is 1 if a text differs from what it is alone,
if a block or a slot did not come back, if anything was allocated, or if memory grew.
"""

import argparse
import json
import sys
from pathlib import Path

import pumice
from pumice.demo import demo_model_path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
import soaking

MEMORY = 16 * 2**20  # bytes that the last quarter may have more than the second: what malloc leaves lying about


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1, help="of the CPU backend")
    parser.add_argument("model", nargs="?", type=Path, default=demo_model_path())
    given = parser.parse_args()
    settings = {"backend": "cpu", "cpu": {"threads": given.threads}}
    n_vocab = pumice.load_tokenizer(given.model).n_vocab

    def watch(held: soaking.Held, tally: soaking.Tally) -> None:
        counts = f"{tally.finished} finished, {tally.cancelled} cancelled, {tally.refused} refused"
        memory = f"{held.memory / 2**20:.1f} MiB, {held.threads} threads"
        print(f"{held.seconds:7.1f} s  {memory}, {counts}, {len(tally.wrong)} wrong", file=sys.stderr, flush=True)

    known = soaking.cases(given.model, n_vocab, settings)
    outcome = soaking.soak(given.model, known, given.clients, given.seconds, settings, watch)
    tally, seen = outcome.tally, outcome.held
    told = {"seconds": given.seconds, "clients": given.clients, **vars(tally), "wrong": len(tally.wrong)}
    told |= {"examples": [repr(each) for each in tally.wrong[:3]], "lost": outcome.lost}
    told |= {"memory_mib": [round(each.memory / 2**20, 1) for each in seen], "grown": soaking.grown(seen)}
    told |= {"allocated": seen[-1].arenas - seen[0].arenas}
    print(json.dumps(told, indent=1))
    return int(bool(tally.wrong or outcome.lost or told["allocated"] or told["grown"] > MEMORY))


if __name__ == "__main__":
    sys.exit(main())
