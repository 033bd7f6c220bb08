"""A campaign: all targets in turns on several processes for a time, counted in one file."""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from fuzz.process import FINDS, Run

SLICE = 30.0  # seconds of a run
SHORTEST = 5.0  # seconds; what is left after the last run may be less
GUIDED = 4  # one round of so many is guided by atheris, which costs most of a check's speed


class Turn(NamedTuple):
    """A run to do: the target, whether atheris may guide it, and its seed."""

    target: str
    guided: bool
    seed: int


def turns(targets: Sequence[str], seed: int) -> Iterator[Turn]:
    """Yield turns without end, round by round; the first round is guided."""
    for number in count():
        for target in targets:
            yield Turn(target, number % GUIDED == 0, seed + number)


class Campaign:
    """Runs turns on several threads, each of which waits for a process, until the time is over."""

    def __init__(self, targets: Sequence[str], seed: int, report: Path, run: Callable[[Turn, float, int], Run]) -> None:
        """Prepare a campaign.

        Args:
            targets: Names of the targets.
            seed: Seed of the first round; each round adds one.
            report: File of JSON that is written after each turn.
            run: Runs a turn for so many seconds on the thread with this number.
        """
        self._turns = turns(targets, seed)
        self._runs: dict[str, list[Run]] = {name: [] for name in targets}
        self._report = report
        self._run = run
        self._lock = threading.Lock()
        self._began = monotonic()

    def work(self, workers: int, seconds: float) -> int:
        """Run turns for a time; return the number of finds."""
        end = self._began + seconds
        threads = [threading.Thread(target=self._work, args=(slot, end)) for slot in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return len(self._finds())

    def _work(self, slot: int, end: float) -> None:
        while (left := end - monotonic()) > SHORTEST:
            with self._lock:
                turn = next(self._turns)
            done = self._run(turn, min(SLICE, left), slot)
            with self._lock:
                self._runs[turn.target].append(done)
                for find in done.finds:
                    print(find, flush=True)
                self._write()

    def _write(self) -> None:
        targets = {name: _summed(runs) for name, runs in self._runs.items()}
        counts = {
            "seconds": round(monotonic() - self._began),
            "executions": sum(target["executions"] or 0 for target in targets.values()),
            "finds": self._finds(),
            "targets": targets,
        }
        part = self._report.with_name(self._report.name + ".part")
        part.write_text(json.dumps(counts, indent=1) + "\n")
        part.replace(self._report)

    def _finds(self) -> list[str]:
        return sorted(path.name for path in FINDS.iterdir()) if FINDS.is_dir() else []


def _summed(runs: Sequence[Run]) -> dict[str, int | None]:
    return {
        "executions": sum(run.executions for run in runs),
        "guided": sum(run.executions for run in runs if run.engine == "atheris"),
        "seconds": round(sum(run.seconds for run in runs)),
        "edges": max((run.edges for run in runs if run.edges is not None), default=None),
        "lines": max((run.lines for run in runs if run.lines is not None), default=None),
        "finds": sum(len(run.finds) for run in runs),
    }
