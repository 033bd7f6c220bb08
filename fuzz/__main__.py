"""`python -m fuzz`: run targets one after the other, each in a process of its own."""

import argparse
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep

from fuzz import ROOT
from fuzz.coverage import covered_lines
from fuzz.targets import load, names
from fuzz.trial import Record, keep

FOLDER = ROOT / ".fuzz"
FINDS = FOLDER / "finds"
STALL = 120.0  # seconds without a new execution after which a process counts as hanging


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="targets to run (default: all)")
    parser.add_argument("--seconds", type=float, default=0, help="seconds per target (0 = no limit)")
    parser.add_argument("--runs", type=int, default=0, help="executions per target (0 = no limit)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the mutator")
    parser.add_argument("--plain", action="store_true", help="mutate without coverage even if atheris is installed")
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
    else:
        if not (arguments.seconds or arguments.runs):
            parser.error("set --seconds or --runs")
        return int(sum([_fuzz(name, arguments) for name in targets]) > 0)
    return 0


def _fuzz(name: str, arguments: argparse.Namespace) -> int:
    """Run one target and return the number of its finds."""
    folder = FOLDER / name
    folder.mkdir(parents=True, exist_ok=True)
    FINDS.mkdir(exist_ok=True)
    record = Record(folder / "record")
    record.write(0, 0, b"")
    engine = "plain" if arguments.plain or importlib.util.find_spec("atheris") is None else "atheris"
    command = [sys.executable, "-m", "fuzz.worker", name, str(folder), "--finds", str(FINDS), "--engine", engine]
    command += [f"--seconds={arguments.seconds}", f"--runs={arguments.runs}", f"--seed={arguments.seed}"]
    log = folder / "log"
    started = monotonic()
    with log.open("wb") as output:
        environment = os.environ | {"RUST_BACKTRACE": "0"}  # panics of libraries are caught, and frequent
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT)
        problem = _wait(process, record)
    executions, finds, data = record.read()
    if problem:
        finds += 1
        print(f"FIND {name}: {keep(FINDS, name, data)}\n{problem}", flush=True)
    text = log.read_text(errors="replace")
    for find in re.findall(r"^FIND .*?(?=^#\d|^FIND|\Z)", text, re.MULTILINE | re.DOTALL):
        print(find.strip(), flush=True)
    edges = re.findall(r"cov: (\d+)", text)
    summary = {
        "target": name,
        "engine": engine,
        "seconds": round(monotonic() - started, 1),
        "executions": executions,
        "edges": int(edges[-1]) if edges else None,
        "finds": finds,
    }
    print(json.dumps(summary), flush=True)
    with (FOLDER / "summaries.jsonl").open("a") as file:
        file.write(json.dumps(summary) + "\n")
    return finds


def _wait(process: subprocess.Popen[bytes], record: Record) -> str:
    """Wait for the end of a process; return a description of its fault, or an empty text."""
    executions, changed = 0, monotonic()
    while process.poll() is None:
        sleep(0.05)
        if (now := record.read()[0]) != executions:
            executions, changed = now, monotonic()
        elif monotonic() - changed > STALL and executions:
            process.kill()
            process.wait()
            return f"an input takes more than {STALL:.0f} seconds"
    return f"the process exited with status {process.returncode}" if process.returncode else ""


if __name__ == "__main__":
    sys.exit(main())
