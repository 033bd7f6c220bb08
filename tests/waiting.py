"""Waiting for what comes. A machine that other work makes slow for a while fails no test."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep, thread_time  # by their names: a test may put others in the module

PATIENCE = 60.0  # seconds after which a machine was not slow, but what it should do does not come
REFERENCE = 0.004  # seconds of ``_piece`` on the processor by which limits of tests are chosen


def wait_until(condition: Callable[[], object], seconds: float = PATIENCE) -> None:
    """Raises AssertionError where ``condition`` does not become true."""
    deadline = monotonic() + seconds
    while not condition():
        assert monotonic() < deadline, f"it did not come in {seconds:.0f} seconds"
        sleep(0.01)


def waiting_for(path: Path) -> str:
    """An expression of Python that is False, once there is a file."""
    return f"any(iter(lambda: __import__('os').path.exists({str(path)!r}) or __import__('time').sleep(0.01), True))"


def gone(pid: int) -> bool:
    """Whether no process has this id, or only one that nobody has waited for."""
    return _state(Path(f"/proc/{pid}")) in ("", "Z")


def _state(folder: Path) -> str:
    """The letter of a process or thread in the system's list, nothing where there is none."""
    try:
        return (folder / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # the latter if it ends meanwhile
        return ""


def hang(pid: int) -> None:
    """Stop a process. Its threads go on until the one that gets the signal has had its turn."""
    os.kill(pid, signal.SIGSTOP)
    threads = Path(f"/proc/{pid}/task").iterdir
    wait_until(lambda: all(_state(each) in ("", "T") for each in threads()))


def at_best(measure: Callable[[], float], enough: float) -> float:
    """Return the lowest result of ``measure``, repeated until it is below ``enough`` or patience ends.

    What is slow by itself is slow each time.
    """
    deadline = monotonic() + PATIENCE
    best = measure()
    while best >= enough and monotonic() < deadline:
        best = min(best, measure())
    return best


def seconds_of(act: Callable[[], object], enough: float) -> float:
    """Return the lowest seconds of this thread for ``act``, as ``at_best``, in those of the reference processor.

    Only where they are not ``enough`` as they are is this processor compared, which takes longer than many an ``act``.
    """

    def measure() -> float:
        started = thread_time()
        act()
        seconds = thread_time() - started
        return seconds if seconds < enough else seconds / slowness()

    return at_best(measure, enough)


def slowness() -> float:
    """Return how often as long as the reference processor this one takes for a piece of Python; at least 1."""
    return max(1.0, min(_piece() for _ in range(3)) / REFERENCE)


def _piece() -> float:
    """Return the seconds of this thread for a loop of formatting, hashing and lookups."""
    began = thread_time()
    lengths: dict[str, int] = {}
    for i in range(20_000):
        key = str(i % 997)
        lengths[key] = lengths.get(key, 0) + len(key)
    return thread_time() - began
