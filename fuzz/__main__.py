"""`python -m fuzz`: run targets one after the other, or in turns on several processes."""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from fuzz.campaign import Campaign, Turn
from fuzz.coverage import covered_lines
from fuzz.process import FOLDER, Limits, Run, best_engine, run
from fuzz.targets import load, names


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="targets to run (default: all)")
    parser.add_argument("--seconds", type=float, default=0, help="seconds per target, or of a campaign (0 = no limit)")
    parser.add_argument("--runs", type=int, default=0, help="executions per target (0 = no limit)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the mutator")
    parser.add_argument("--plain", action="store_true", help="mutate without coverage even if atheris is installed")
    parser.add_argument("--workers", type=int, default=0, help="run a campaign: targets in turns on so many processes")
    parser.add_argument("--report", type=Path, default=FOLDER / "campaign.json", help="file of a campaign's counts")
    parser.add_argument("--list", action="store_true", help="list targets and exit")
    parser.add_argument("--coverage", action="store_true", help="report the lines reached by seeds and grown corpus")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="check one input and exit")
    arguments = parser.parse_args()
    targets = arguments.targets or names()
    if unknown := set(targets) - set(names()):
        parser.error(f"unknown target {', '.join(sorted(unknown))}; choose from {', '.join(names())}")
    if arguments.list:
        for name in targets:
            print(f"{name:20} {load(name).summary}")
    elif arguments.coverage:
        for name in targets:
            print(covered_lines(load(name), FOLDER / name / "corpus"), flush=True)
    elif arguments.replay:
        load(targets[0]).check(arguments.replay.read_bytes())
    elif not arguments.seconds and (arguments.workers or not arguments.runs):
        parser.error("set --seconds" if arguments.workers else "set --seconds or --runs")
    else:
        engine = "plain" if arguments.plain else best_engine()
        finds = _campaign(targets, engine, arguments) if arguments.workers else _each(targets, engine, arguments)
        return int(finds > 0)
    return 0


def _campaign(targets: list[str], engine: str, arguments: argparse.Namespace) -> int:
    FOLDER.mkdir(exist_ok=True)

    def take(turn: Turn, seconds: float, slot: int) -> Run:
        return run(turn.target, engine if turn.guided else "plain", Limits(seconds, seed=turn.seed), slot)

    return Campaign(targets, arguments.seed, arguments.report, take).work(arguments.workers, arguments.seconds)


def _each(targets: list[str], engine: str, arguments: argparse.Namespace) -> int:
    finds = 0
    for name in targets:
        done = run(name, engine, Limits(arguments.seconds, arguments.runs, arguments.seed))
        finds += len(done.finds)
        for find in done.finds:
            print(find, flush=True)
        summary = json.dumps({**asdict(done), "finds": len(done.finds)})
        print(summary, flush=True)
        with (FOLDER / "summaries.jsonl").open("a") as file:
            file.write(summary + "\n")
    return finds


if __name__ == "__main__":
    sys.exit(main())
