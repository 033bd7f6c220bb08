"""A backend whose steps a test lets through one by one, so that an engine's thread takes the same turns every time."""

import threading
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from installed_plugins import passed
from pumice.plugin.unstable import Limits, MemoryPlan, Program, Segment, Step
from pumice_numpy import NumpyBackend

HANGS = 30.0  # seconds without a step or an answer after which an engine hangs
BACKEND = "paced"


class Pace:
    """Lets steps of programs through.

    Attributes:
        changed: Notified by programs that wait, and by the test's listeners.
        n_runs: Number of runs that were let through.
        error: Raised in place of the next run.
        n_failed: Number of runs that raised it.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.n_runs = 0
        self.n_failed = 0
        self.error: Exception | None = None
        self._is_open = True
        self._n_allowed = 0
        self._waits = False

    def stop(self) -> None:
        """Let no further run through."""
        with self.changed:
            self._is_open = False

    def open(self) -> None:
        """Let every run through from now on."""
        with self.changed:
            self._is_open = True
            self.changed.notify_all()

    def settle(self, ended: Callable[[], bool]) -> bool:
        """Wait until a program waits, or ``ended``; return True if a program waits. Raises AssertionError."""
        with self.changed:
            came = self.changed.wait_for(lambda: self._waits or ended(), HANGS)
            assert came, f"the engine neither computes nor answers for {HANGS:.0f} s"
            return self._waits

    def step(self, ended: Callable[[], bool]) -> None:
        """Let a waiting run through, and ``settle``."""
        with self.changed:
            self._waits = False
            self._n_allowed += 1
            self.changed.notify_all()
        self.settle(ended)

    def enter(self) -> None:
        """Called by a program before it runs."""
        with self.changed:
            if not self._is_open and not self._n_allowed:
                self._waits = True
                self.changed.notify_all()
                self.changed.wait_for(lambda: self._n_allowed or self._is_open)
            self._waits = False
            self._n_allowed = max(0, self._n_allowed - 1)
            self.n_runs += 1
            error, self.error = self.error, None
            if error:
                self.n_failed += 1
                raise error

    def plugin(self) -> ModuleType:
        """Return a plugin with a backend of this pace, whose name is ``BACKEND``; it computes as NumPy's does."""
        pace = self

        class Paced(NumpyBackend):
            def compile(self, segment: Segment, plan: MemoryPlan, limits: Limits) -> Program:
                program = super().compile(segment, plan, limits)
                run = program.run

                def paced(step: Step) -> Mapping[str, Any]:
                    pace.enter()
                    return run(step)

                program.run = paced  # type: ignore[method-assign]
                return program

        return passed("backends", "paced_backend", paced=Paced)
