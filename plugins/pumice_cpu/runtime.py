"""A thread pool that runs tables of operations, on all threads or on one alone where that is faster.

Programs of a process share it: an encoder and a decoder, or a model and its draft model, would keep twice as many
threads as cores waiting for each other at barriers. The caller is thread 0. The others spin for a while between steps,
so that a token loop does not wait for them to wake, and then sleep.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import math
import os
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import BackendError
from pumice_cpu.contention import Pace
from pumice_cpu.kernel import Kernel, load_kernels

# Indices in the shared block, in int64, as in kernels/step.py. A process with cached kernels does not import that
# module, so they are repeated here.
_LINE = 8
_GO, _ROUND, _TABLE, _SIZE = 0, 2 * _LINE, 4 * _LINE, 5 * _LINE

_LONG = 64  # tokens of a step from which other steps may run between parts of it
_PART = 32  # operations of a part
_CLOSED = "cpu: the thread pool is closed"

logger = logging.getLogger("pumice.cpu")

KERNELS = ("step.run", "step.work", "step.start")


class OperationTable:
    """Operations in execution order: each a kernel and its row of arguments."""

    def __init__(self) -> None:
        self._operations: list[tuple[str, dict[str, int], bool]] = []
        self._rows: list[NDArray[np.int64]] = []
        self._table = self._tickets = np.zeros(0, np.int64)
        self._parts: dict[tuple[int, bool], list[NDArray[np.int64]]] = {}  # by number of threads, and if they are cut
        self.paces: dict[int, Pace] = {}  # measured times, by the logarithm of the step's size

    def add(self, kernel: str, arguments: dict[str, int], *, alongside: bool = False) -> None:
        """Append an operation. Each argument is a number, an address, or the bits of a float32.

        The argument ``ticket``, of kernels with dynamic work sharing, is filled in later. ``alongside``: no barrier
        before this operation, so threads may start while others still run the previous one.
        """
        self._operations.append((kernel, arguments, alongside))

    def __len__(self) -> int:
        return len(self._operations)

    @property
    def kernels(self) -> list[str]:
        """Return the names of the kernels."""
        return list(dict.fromkeys(kernel for kernel, *_ in self._operations))

    def parts(self, n_threads: int, is_cut: bool) -> list[NDArray[np.int64]]:
        """Return the parts of the table as threads need them: address and length, their number, address of tickets."""
        if len(self._rows) != len(self):
            self._link()
            self._parts = {}
        if (parts := self._parts.get((n_threads, is_cut))) is None:
            table, tickets, size = address(self._table), address(self._tickets), _PART if is_cut else len(self)
            parts = self._parts[n_threads, is_cut] = [
                np.array([table + 24 * i, min(size, len(self) - i), n_threads, tickets + 8 * i], np.int64)
                for i in range(0, len(self), size)
            ]
        return parts

    def _link(self) -> None:
        kernels = load_kernels(self.kernels)
        self._tickets = np.zeros(len(self), np.int64)
        self._table = np.zeros((len(self), 3), np.int64)
        self._rows = []
        for i, (name, arguments, alongside) in enumerate(self._operations):
            kernel = kernels[name]
            if "ticket" in kernel.parameters:
                arguments = {**arguments, "ticket": int(self._tickets.ctypes.data) + 8 * i}
            if set(arguments) != set(kernel.parameters):
                raise TypeError(f"kernel {name} expects the arguments {kernel.parameters}, not {tuple(arguments)}")
            self._rows.append(np.array([arguments[parameter] for parameter in kernel.parameters], np.int64))
            self._table[i] = kernel.address, self._rows[i].ctypes.data, i > 0 and not alongside


class ThreadPool:
    """A pool of ``n_threads`` threads, including the caller's, that runs one table at a time.

    If ``adaptive``, a single thread runs steps where that is faster. The threads start with the first table. Tables of
    several threads take turns in the order in which they come, those of long steps part by part.
    """

    def __init__(self, n_threads: int, adaptive: bool = True) -> None:
        self.n_threads = n_threads
        self._adaptive = adaptive
        self.shared = aligned_zeros(8 * _SIZE).view(np.int64)
        self._alone = aligned_zeros(8 * _SIZE).view(np.int64)  # the shared block of steps that the caller runs alone
        self._busy = aligned_zeros(8 * _LINE * n_threads).view(np.int64).reshape(n_threads, _LINE)  # kernels/step.py
        self._spent = self._busy[:, 0]  # nanoseconds of each thread in steps on all threads
        self._known_busy = 0.0  # core seconds of all threads in the steps so far, as far as reported
        self._caller_busy = 0.0  # core seconds of the caller in steps on all threads
        self._lock = threading.Lock()
        self._next = threading.Lock()  # of the caller that waits for its turn
        self._closing = False
        self._wake = [threading.Event() for _ in range(1, n_threads)]
        self._threads: list[threading.Thread] = []
        self._is_started = False

    def start(self) -> None:
        """Load the kernels and start the threads, unless they run. Raises BackendError if that is impossible."""
        with self._lock:
            if self._closing:
                raise BackendError(_CLOSED)
            if self._is_started:
                return
            kernels = load_kernels(KERNELS)
            self._run, self._follow, self._start = (kernel_function(kernel) for kernel in kernels.values())
            try:
                for index, event in enumerate(self._wake, 1):
                    thread = threading.Thread(target=self._work, args=(index, event), daemon=True)
                    thread.name = f"pumice-cpu-{index}"
                    thread.start()
                    self._threads.append(thread)
            except RuntimeError as error:
                n_started = len(self._threads) + 1
                self._stop()
                self._closing, self.shared = False, aligned_zeros(8 * _SIZE).view(np.int64)  # may be tried again
                raise BackendError(
                    f"cpu: {n_started} of {self.n_threads} threads started ({error}); set cpu.threads to fewer"
                ) from None
            self._is_started = True

    def run(self, table: OperationTable, size: int = 1) -> None:
        """Run every operation, on all threads or on one; return when the last has finished.

        ``size`` is the number of tokens in the step. Durations of steps with similar sizes are compared to choose
        threads.
        """
        if not len(table):  # without a barrier threads could take the next table for this one
            return
        if not self._is_started:
            self.start()
        pace = self._pace(table, size)
        alone = pace.choose(time.perf_counter())
        seconds = work = 0.0
        for part in table.parts(1 if alone else self.n_threads, size >= _LONG):
            with ExitStack() as turn:
                turn.enter_context(self._next)
                with self._lock:
                    turn.close()
                    began = time.perf_counter()
                    self._run_part(part, alone)
                    now = time.perf_counter()
                    seconds += now - began
                    work += math.nan if alone else self._newly_busy()
        was_alone, before = pace.is_alone, pace.seconds
        pace.took(alone, seconds, work, now)
        if pace.is_alone != was_alone:
            self._tell(pace, size, before)

    def _run_part(self, part: NDArray[np.int64], alone: bool) -> None:
        if self._closing:
            raise BackendError(_CLOSED)
        shared = self._alone if alone else self.shared
        shared[_TABLE : _TABLE + 4] = part
        place = address(shared)
        if alone:
            self._start(place)
            self._run(place, 0, _yield_function())
        else:
            self._run_together(place)

    def _tell(self, pace: Pace, size: int, seconds: float) -> None:
        """Log a switch between all threads and one."""
        mode = "one thread" if pace.is_alone else f"all {self.n_threads} threads"
        milliseconds = 1e3 * pace.seconds, 1e3 * seconds
        logger.info("cpu: running steps of about %d tokens on %s: %.2f ms, before %.2f", size, mode, *milliseconds)

    def _pace(self, table: OperationTable, size: int) -> Pace:
        """Return the measurements of steps with at least half and less than twice as many tokens."""
        if (pace := table.paces.get(size.bit_length())) is None:
            pace = table.paces[size.bit_length()] = Pace(self.n_threads, self._adaptive)
        return pace

    def close(self) -> None:
        """Stop the threads. A step without operations ends those that spin."""
        with self._lock:
            self._stop()

    def _stop(self) -> None:
        self._closing, self._is_started = True, False
        if self._threads:
            self.shared[_TABLE : _TABLE + 4] = 0
            self._start(address(self.shared))
        for event in self._wake:
            event.set()
        for thread in self._threads:
            thread.join()
        self._threads = []

    def _work(self, thread: int, event: threading.Event) -> None:
        """Run a thread's part of steps.

        Between steps that follow each other soon, the thread stays outside Python, whose lock other threads may hold:
        a thread that needs it may wait for 5 ms.
        """
        latest = np.zeros(1, np.int64)
        functions = (*_thread_clock(), _yield_function(), _sleep_function())
        while not self._closing:
            last_step = int(latest[0])
            self._follow(address(self.shared), thread, last_step, address(latest), address(self._busy), *functions)
            event.clear()
            if self.shared[_GO] == latest[0] and not self._closing:
                event.wait()

    def _run_together(self, place: int) -> None:
        """Run a step on all threads. Interrupted before its own part, this thread takes part nevertheless.

        The others would wait for it without end, and ``close`` for them.
        """
        step, n_barriers = self.shared[_GO], self.shared[_ROUND]
        try:
            self._start(place)
            self._wake_all()
            self._take_part(place)
        except BaseException:
            if self.shared[_GO] != step and self.shared[_ROUND] == n_barriers:
                self._wake_all()
                self._run(place, 0, _yield_function())
            raise

    def _wake_all(self) -> None:
        for event in self._wake:
            if not event.is_set():  # the thread sleeps, or is about to
                event.set()

    def _take_part(self, place: int) -> None:
        """Run the caller's part of a step, whose shared block lies at ``place``."""
        began = time.thread_time()
        self._run(place, 0, _yield_function())
        self._caller_busy += time.thread_time() - began

    def _newly_busy(self) -> float:
        """Return the core seconds of steps on all threads since the last call; NaN if the system does not tell them.

        Threads report a step's when the next one begins.
        """
        if not _thread_clock()[0]:
            return math.nan
        before, self._known_busy = self._known_busy, self._caller_busy + 1e-9 * float(self._spent.sum())
        return self._known_busy - before


class _SharedPools:
    """The pools of this process by number of threads, and whether they are adaptive."""

    def __init__(self) -> None:
        self.forget()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.forget)

    def forget(self) -> None:
        """Begin without pools: threads do not live on in a forked process."""
        self._lock = threading.Lock()
        self._pools: dict[tuple[int, bool], ThreadPool] = {}
        self._users = Counter[ThreadPool]()

    def take(self, n_threads: int, adaptive: bool) -> ThreadPool:
        """Return a pool, for ``give_back``."""
        with self._lock:
            pool = self._pools.setdefault((n_threads, adaptive), ThreadPool(n_threads, adaptive))
            self._users[pool] += 1
            return pool

    def give_back(self, pool: ThreadPool) -> None:
        """Close a pool that nobody else has."""
        with self._lock:
            self._users[pool] -= 1
            if self._users[pool] > 0:
                return
            del self._users[pool]
            self._pools = {key: other for key, other in self._pools.items() if other is not pool}
        pool.close()


POOLS = _SharedPools()


def aligned_zeros(size: int) -> NDArray[np.uint8]:
    """Return ``size`` zero bytes at an address that is a multiple of 64."""
    memory = np.zeros(size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + size]


def address(array: NDArray[Any]) -> int:
    """Return the address of a contiguous array; of a writable one in a fifth of the time of ``array.ctypes.data``."""
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(array.data))
    except (TypeError, ValueError):  # read-only, or empty
        return int(array.ctypes.data)


def float_bits(value: float) -> int:
    """Return a float32 as the int64 argument that ``bits_f32`` reads."""
    return int(np.float32(value).view(np.int32))


def kernel_function(kernel: Kernel) -> Any:
    """Return a compiled function, callable from Python. It releases Python's global lock."""
    return ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * len(kernel.parameters))(kernel.address)


@functools.cache
def _thread_clock() -> tuple[int, int]:
    """Return the address of ``clock_gettime``, and the number of the clock of a thread's core time; zeros if absent."""
    number = {"linux": 3, "darwin": 16}.get(sys.platform, 0)
    if not number:
        return 0, 0
    return ctypes.cast(ctypes.CDLL(None).clock_gettime, ctypes.c_void_p).value or 0, number


@functools.cache
def _sleep_function() -> int:
    """Return the address of ``usleep``; 0 if there is none."""
    if sys.platform == "win32":
        return 0
    return ctypes.cast(ctypes.CDLL(None).usleep, ctypes.c_void_p).value or 0


@functools.cache
def _yield_function() -> int:
    """Return the address of the system's yield function; 0 if there is none."""
    try:
        library = ctypes.WinDLL("kernel32") if sys.platform == "win32" else ctypes.CDLL(None)  # type: ignore[attr-defined,unused-ignore]
        function = library.SwitchToThread if sys.platform == "win32" else library.sched_yield
    except (AttributeError, OSError):
        return 0
    return ctypes.cast(function, ctypes.c_void_p).value or 0
