"""Threads that run tables of operations together.

The caller is thread 0. The others spin for a while between steps, so that a token loop never waits for
them to wake, and then sleep.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice_cpu.kernel import Kernel, load_kernels

# Places in the shared block, in int64; kernels/step.py says what they are. A process whose kernels are
# cached does not import that module.
_LINE = 8
_GO, _TICKETS, _TABLE, _SIZE = 0, 4 * _LINE, 6 * _LINE, 7 * _LINE


class OperationTable:
    """Operations in the order they run: which kernel, and its row of arguments."""

    def __init__(self, tickets: int) -> None:
        self._tickets = tickets
        self._rows: list[NDArray[np.int64]] = []
        self._operations: list[tuple[int, int]] = []
        self._table = np.zeros((0, 2), np.int64)

    def add(self, kernel: Kernel, **arguments: int) -> None:
        """Append an operation. Each parameter is a number, an address, or the bits of a float32.

        The parameter ``ticket``, of kernels that share out their parts as they go, is given here.
        """
        if "ticket" in kernel.parameters:
            arguments["ticket"] = self._tickets + 8 * (len(self) & 1)
        if set(arguments) != set(kernel.parameters):
            raise TypeError(f"{kernel.name} takes {kernel.parameters}, not {tuple(arguments)}")
        row = np.array([arguments[name] for name in kernel.parameters], np.int64)
        self._rows.append(row)
        self._operations.append((kernel.address, row.ctypes.data))

    def __len__(self) -> int:
        return len(self._operations)

    @property
    def address(self) -> int:
        if len(self._table) != len(self._operations):
            self._table = np.array(self._operations, np.int64).reshape(-1, 2)
        return int(self._table.ctypes.data)


class ThreadPool:
    """``n_threads`` threads, the caller's included, for one table at a time."""

    def __init__(self, n_threads: int) -> None:
        self.n_threads = n_threads
        self.shared = aligned_zeros(8 * _SIZE).view(np.int64)
        kernels = load_kernels(["step.run", "step.wait", "step.start"])
        self._run, self._wait, self._start = (_function(kernel) for kernel in kernels.values())
        self._lock = threading.Lock()
        self._closing = False
        self._wake = [threading.Event() for _ in range(1, n_threads)]
        for index, event in enumerate(self._wake, 1):
            threading.Thread(target=self._work, args=(index, event), daemon=True, name=f"pumice-cpu-{index}").start()

    def new_table(self) -> OperationTable:
        return OperationTable(int(self.shared.ctypes.data) + 8 * _TICKETS)

    def run(self, table: OperationTable) -> None:
        """Run every operation on all threads; returns when the last is done."""
        if not len(table):  # nothing for the threads to meet at: they could take the next table for this one
            return
        with self._lock:
            self.shared[_TABLE : _TABLE + 3] = table.address, len(table), self.n_threads
            self._start(self.shared.ctypes.data)
            for event in self._wake:
                event.set()
            self._run(self.shared.ctypes.data, 0, _yield_function())

    def close(self) -> None:
        """End the threads."""
        self._closing = True
        for event in self._wake:
            event.set()

    def _work(self, thread: int, event: threading.Event) -> None:
        latest = np.zeros(1, np.int64)
        seen = 0
        while not self._closing:
            self._wait(self.shared.ctypes.data, seen, latest.ctypes.data, _yield_function())
            if latest[0] == seen:  # nothing to do for a while
                event.clear()
                if self.shared[_GO] == seen and not self._closing:
                    event.wait()
            else:
                seen = int(latest[0])
                self._run(self.shared.ctypes.data, thread, _yield_function())


def aligned_zeros(size: int) -> NDArray[np.uint8]:
    """``size`` zero bytes at an address that is a multiple of 64."""
    memory = np.zeros(size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + size]


def float_bits(value: float) -> int:
    """A float32 as the int64 argument that ``bits_f32`` reads."""
    return int(np.float32(value).view(np.int32))


def _function(kernel: Kernel) -> Any:
    """A compiled function, callable from Python. Other Python threads run while it does."""
    return ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * len(kernel.parameters))(kernel.address)


@functools.cache
def _yield_function() -> int:
    """Address of the system's function that lets other threads run; 0 if there is none."""
    try:
        library = ctypes.WinDLL("kernel32") if sys.platform == "win32" else ctypes.CDLL(None)  # type: ignore[attr-defined,unused-ignore]
        function = library.SwitchToThread if sys.platform == "win32" else library.sched_yield
    except (AttributeError, OSError):
        return 0
    return ctypes.cast(function, ctypes.c_void_p).value or 0
