"""Run a target in a process of its own, which may crash or hang."""

import importlib.util
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from time import monotonic, sleep

from fuzz import ROOT
from fuzz.trial import Record, keep

FOLDER = ROOT / ".fuzz"
FINDS = FOLDER / "finds"
STALL = 120.0  # seconds without a new execution after which a process counts as hanging
_FIND = re.compile(r"^FIND .*?(?=^#\d|^FIND|^lines: |\Z)", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Limits:
    """When a run ends, and what it mutates first. Zero: no limit."""

    seconds: float = 0
    runs: int = 0
    seed: int = 0


@dataclass(frozen=True)
class Run:
    """Outcome of a run.

    Attributes:
        edges: edges reached, if the run was guided by atheris.
        lines: lines of Pumice reached, if this Python can tell.
        finds: reports of faults; their inputs are files in ``FINDS``.
    """

    target: str
    engine: str
    seconds: float
    executions: int
    edges: int | None
    lines: int | None
    finds: list[str]


def best_engine() -> str:
    """Return the engine that reaches most: atheris where it is installed."""
    return "plain" if importlib.util.find_spec("atheris") is None else "atheris"


def run(name: str, engine: str, limits: Limits, slot: int = 0) -> Run:
    """Run a target to its limits; ``slot`` distinguishes runs of one target at the same time."""
    folder = FOLDER / name
    folder.mkdir(parents=True, exist_ok=True)
    FINDS.mkdir(exist_ok=True)
    record = Record(folder / f"record-{slot}")
    record.write(0, 0, b"")
    command = [sys.executable, "-m", "fuzz.worker", name, str(folder), f"--slot={slot}", f"--finds={FINDS}"]
    command += [f"--engine={engine}", f"--seconds={limits.seconds}", f"--runs={limits.runs}", f"--seed={limits.seed}"]
    log = folder / f"log-{slot}"
    started = monotonic()
    with log.open("wb") as output:
        environment = os.environ | {"RUST_BACKTRACE": "0"}  # panics of libraries are caught, and frequent
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT)
        problem = _wait(process, record)
    executions, _, data = record.read()
    text = log.read_text(errors="replace")
    finds = [find.strip() for find in _FIND.findall(text)]
    if problem:
        finds.append(f"FIND {name}: {keep(FINDS, name, data)}\n{problem}\n{text[-2000:]}")
    seconds = round(monotonic() - started, 1)
    return Run(name, engine, seconds, executions, _last(r"cov: (\d+)", text), _last(r"^lines: (\d+)", text), finds)


def _last(pattern: str, text: str) -> int | None:
    numbers = re.findall(pattern, text, re.MULTILINE)
    return int(numbers[-1]) if numbers else None


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
