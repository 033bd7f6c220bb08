"""A pool of worker processes. A call that fails, crashes or exceeds its limits affects no other call."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import subprocess
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from typing import TypeVar

import msgspec

from pumice.errors import EngineError, TooExpensiveError, UnavailableError, from_plain
from pumice.isolation import wire
from pumice.isolation.limits import CallLimits, measure
from pumice.spawning import Child, describe_status, end, start

T = TypeVar("T")

logger = logging.getLogger("pumice")

_CRASHES = ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL", "SIGFPE", "SIGSYS")
_LOOK_SECONDS = 1.0  # interval of checking whether a late worker is stopped
_END_SECONDS = 1.0  # to wait for a process that has closed its output


class WorkerPool:
    """Runs tasks, functions of one plain value, in worker processes. Thread-safe.

    Workers start on demand, and again after a call has killed one. They end with this process; a forked process starts
    its own.
    """

    def __init__(self, work: str, limits: CallLimits | None = None, n_workers: int | None = None) -> None:
        """``work`` is the beginning of error messages, such as "rendering the chat template"."""
        self._work = work
        self._limits = limits or CallLimits()
        n_workers = n_workers or min(4, max(2, os.cpu_count() or 1))
        self._workers = [_Worker(work, self._limits) for _ in range(n_workers)]
        self._change = threading.Condition()
        self._n_large = 0  # calls with large payloads, including waiting ones
        self._watch = _Watch(self._workers)
        self._finalizer = weakref.finalize(self, _close, self._workers, self._watch)  # also at the interpreter's exit
        _pools.add(self)

    def call(self, task: str, payload: object, returns: type[T]) -> T:
        """Run a task and return its result.

        Args:
            task: name of a function, as resolved by ``pumice.lazy``.
            payload: plain data: texts, numbers, lists and dictionaries.
            returns: type of the result, which is checked.

        Raises:
            TooExpensiveError: the call exceeds its ``CallLimits``, or crashes its worker.
            UnavailableError: no worker was free in time, or workers ended for reasons outside the call.
            PumiceError: error of the task.
        """
        frame = self._frame(task, payload)
        lost = ""
        for _ in range(2):
            with self._free_worker(len(frame) > self._limits.max_small) as worker:
                try:
                    return self._result(worker.ask(frame, self._watch), returns)
                except _LostError as error:
                    lost = str(error)
                    logger.warning("%s: the worker process %s", self._work, lost)
        raise UnavailableError(f"{self._work} failed: the worker process {lost}; try again later")

    def close(self) -> None:
        """End all workers. Active and later calls fail."""
        self._finalizer()

    @property
    def pids(self) -> list[int]:
        """Return the process ids of the running workers."""
        return [worker.pid for worker in self._workers if worker.pid]

    def forget(self) -> None:
        """Forget the workers in a forked process: they belong to its parent."""
        self._change = threading.Condition()
        self._n_large = 0
        self._watch = _Watch(self._workers)
        for worker in self._workers:
            worker.forget()

    def _frame(self, task: str, payload: object) -> bytes:
        """Return the frame of a call. Every value takes at least a byte, so few payloads need to be counted."""
        limits, data = self._limits, wire.encode(payload)
        if len(data) > limits.max_in:
            raise TooExpensiveError(f"{self._work} takes at most {limits.max_in} bytes, not {len(data)}; send less")
        if len(data) > limits.max_values and measure(payload, limits.max_values)[0] > limits.max_values:
            raise TooExpensiveError(f"{self._work} takes at most {limits.max_values} values; send less")
        return wire.encode(wire.TaskCall(task, msgspec.Raw(data)))

    @contextlib.contextmanager
    def _free_worker(self, large: bool) -> Iterator[_Worker]:
        """Yield a worker for one call. One worker is reserved for small payloads."""
        most_large = max(1, len(self._workers) - 1)
        worker = None

        def is_free() -> bool:
            n_large = sum(worker.busy and worker.large for worker in self._workers)
            return not (large and n_large >= most_large) and not all(worker.busy for worker in self._workers)

        try:
            with self._change:
                self._n_large += large
                refused = self._n_large > self._limits.max_large
                if refused or not self._change.wait_for(is_free, self._limits.wait_seconds):
                    raise UnavailableError(f"{self._work}: no worker is free; try again later")
                worker = next(candidate for candidate in self._workers if not candidate.busy)
                worker.busy, worker.large = True, large
            yield worker
        finally:
            if worker:
                worker.busy = False
            with self._change:
                self._n_large -= large
                self._change.notify_all()

    def _result(self, answer: bytes, returns: type[T]) -> T:
        """Return a worker's result. Everything is checked, since a worker may be compromised."""
        try:
            message = wire.decode(answer, wire.TaskResult)
            if not message.error:
                return wire.decode(message.result, returns)
            error = from_plain(message.error, message.arguments)
        except (msgspec.MsgspecError, ValueError) as failure:
            problem = f"the worker process returned an invalid result: {failure}"
            raise EngineError(f"{self._work} failed: {problem}") from None
        if type(error) in (TooExpensiveError, EngineError):
            raise type(error)(f"{self._work} {error}")
        raise error


class _LostError(Exception):
    """A worker ended, or did not start, for a reason outside of its call."""


class _Worker:
    """A worker process, started on its first call. Only the thread that made it ``busy`` uses it."""

    def __init__(self, work: str, limits: CallLimits) -> None:
        self.busy = self.large = self.closed = False
        self.deadline = math.inf  # of the active call, by the monotonic clock
        self.late = math.inf  # when to check whether the worker is stopped
        self._work = work
        self._limits = limits
        self._child: Child | None = None

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child else None

    def ask(self, frame: bytes, watch: _Watch) -> bytes:
        """Send a call and return the result. Raises TooExpensiveError, UnavailableError or _LostError."""
        child = self._running()
        answer, deadline = None, time.monotonic() + self._limits.wall_seconds
        try:
            self.deadline, self.late = deadline, time.monotonic() + self._limits.cpu_seconds + _LOOK_SECONDS
            watch.look()
            with contextlib.suppress(OSError):
                wire.write_frame(child.stdin, frame)
                answer = wire.read_frame(child.stdout, self._limits.max_out)
        except OverflowError:
            self.end()
            raise TooExpensiveError(f"{self._work} returns more than {self._limits.max_out} bytes") from None
        except BaseException:  # interrupted: a late result would answer the next call
            self.end()
            raise
        finally:
            self.deadline = self.late = math.inf
        if answer is None:
            raise self._failure(self.end(_END_SECONDS), time.monotonic() >= deadline)
        return answer

    def kill(self) -> None:
        """Kill the process of an active call, whose caller handles the rest."""
        if child := self._child:
            child.kill()

    def look(self, now: float) -> None:
        """Kill the process of an active call that is late, or whose worker is stopped."""
        child = self._child
        if child and self.deadline <= now:
            child.kill()
        elif child and self.late <= now:
            self.late = now + _LOOK_SECONDS
            child.kill(if_stopped=True)

    def close(self) -> None:
        self.closed = True
        self.kill() if self.busy else self.end()

    def forget(self) -> None:
        """Forget the process, which belongs to the parent."""
        child, self._child, self.busy, self.deadline = self._child, None, False, math.inf
        _close_pipes(child)

    def end(self, patience: float = 0.0) -> int:
        """Return the status of the process, killing it unless it ends within ``patience`` seconds."""
        child, self._child = self._child, None
        if child is None:
            return 0
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(patience)
        status = end(child)
        _close_pipes(child)
        return status

    def _running(self) -> Child:
        if self.closed:
            raise UnavailableError(f"{self._work} is not possible: this process is ending")
        if self._child is None or self._child.poll() is not None:
            self.end()
            try:
                self._child = start("worker", msgspec.json.encode(self._limits))
            except (OSError, EngineError) as error:
                raise _LostError(f"does not start: {error}") from None
        return self._child

    def _failure(self, status: int, too_late: bool) -> Exception:
        """Return the error for a missing result, by the status of the process."""
        name = describe_status(status)
        if too_late:
            seconds = f"{self._limits.wall_seconds:g} seconds"
            logger.warning("%s: the worker process did not respond within %s", self._work, seconds)
            return UnavailableError(
                f"{self._work}: the worker process did not respond within {seconds}; try again later"
            )
        if name == "SIGXCPU":
            seconds = f"{self._limits.cpu_seconds} seconds of processor time"
            return TooExpensiveError(f"{self._work} takes more than {seconds}; send less")
        if name in _CRASHES:
            return TooExpensiveError(f"{self._work} crashed ({name}): the input is too large or nested too deeply")
        return _LostError(f"was killed by {name}")


class _Watch:
    """Kills late or stopped workers from one thread, which sleeps while there are no calls.

    If a worker takes its next call at that moment, it is lost, and the call is repeated.
    """

    def __init__(self, workers: Sequence[_Worker]) -> None:
        self._workers = workers
        self._wake = threading.Event()
        self._asleep = False
        self._thread: threading.Thread | None = None

    def look(self) -> None:
        """Register a new deadline. Raises UnavailableError if no thread can be started."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="pumice-worker-watch", daemon=True)
            try:
                self._thread.start()
            except RuntimeError as error:
                self._thread = None
                raise UnavailableError(f"no thread can be started: {error}") from None
        if self._asleep:
            self._wake.set()

    def end(self) -> None:
        """End the thread once all workers are closed."""
        self._wake.set()

    def _run(self) -> None:
        while not all(worker.closed for worker in self._workers):
            self._asleep = True  # set before deadlines are read, so that later ones wake the thread
            first = min(min(worker.deadline, worker.late) for worker in self._workers)
            self._asleep = first == math.inf
            self._wake.wait(None if self._asleep else max(0.0, first - time.monotonic()))
            self._wake.clear()
            for worker in self._workers:
                worker.look(time.monotonic())


def _close_pipes(child: Child | None) -> None:
    for pipe in (child.stdin, child.stdout) if child else ():
        with contextlib.suppress(OSError):
            pipe.close()


def _close(workers: Sequence[_Worker], watch: _Watch) -> None:
    for worker in workers:
        worker.close()
    watch.end()


def _forget_all() -> None:
    for pool in list(_pools):
        pool.forget()


_pools: weakref.WeakSet[WorkerPool] = weakref.WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
