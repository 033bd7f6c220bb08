"""The interpreter of an operation table, run by every thread, and the threads' synchronization."""

from __future__ import annotations

from typing import Any

import llvmlite.ir as ir
import numpy as np
from numba import types

from pumice_cpu.simd import get_i64, put_i64
from pumice_cpu.simd.define import operation
from pumice_cpu.simd.inline import inline
from pumice_cpu.simd.types import I64

# Fields of the shared int64 block, 64 bytes apart so that each has its own cache line.
LINE = 64
GO = 0 * LINE  # number of the latest started step
ARRIVED = 1 * LINE  # threads waiting at the barrier
ROUND = 2 * LINE  # barriers passed
TABLE = 4 * LINE  # the step's table: address, number of operations, number of threads, tickets

SPINS = 10_000  # polls of GO before a worker sleeps: about a millisecond on an idle core
NAPS = ((100, 50), (180, 500))  # polls between which it then sleeps briefly, and for how many microseconds: 0.1 s


@operation(types.int64, types.int64, types.int64)
def atomic_add(builder: Any, pointer: Any, value: Any) -> Any:
    return builder.atomic_rmw("add", builder.inttoptr(pointer, I64.as_pointer()), value, "seq_cst")


@operation(types.int64, types.int64)
def atomic_get(builder: Any, pointer: Any) -> Any:
    return builder.load_atomic(builder.inttoptr(pointer, I64.as_pointer()), "seq_cst", 8)


@operation(types.void, types.int64, types.int64)
def atomic_put(builder: Any, pointer: Any, value: Any) -> Any:
    builder.store_atomic(value, builder.inttoptr(pointer, I64.as_pointer()), "seq_cst", 8)


@operation(types.void, types.int64, types.int64, types.int64, types.int64)
def invoke(builder: Any, address: Any, arguments: Any, thread: Any, n_threads: Any) -> Any:
    """Call the kernel at an address."""
    kernel = ir.FunctionType(ir.VoidType(), [I64, I64, I64])
    builder.call(builder.inttoptr(address, kernel.as_pointer()), [arguments, thread, n_threads])


@operation(types.void, types.int64)
def give_way(builder: Any, function: Any) -> Any:
    """Call the system's yield function, if there is one (0: none)."""
    yield_type = ir.FunctionType(ir.IntType(32), [])
    with builder.if_then(builder.icmp_signed("!=", function, I64(0))):
        builder.call(builder.inttoptr(function, yield_type.as_pointer()), [])


@operation(types.void, types.int64, types.int64)
def nap(builder: Any, function: Any, microseconds: Any) -> Any:
    """Sleep by the system's ``usleep``, if there is one (0: none)."""
    number = ir.IntType(32)
    with builder.if_then(builder.icmp_signed("!=", function, I64(0))):
        builder.call(
            builder.inttoptr(function, ir.FunctionType(number, [number]).as_pointer()),
            [builder.trunc(microseconds, number)],
        )


def start(shared):
    """Start a step with all of its parts untaken. The write of GO publishes the table to the workers."""
    n_operations, tickets = get_i64(shared + TABLE + 8), get_i64(shared + TABLE + 24)
    for i in range(n_operations):
        put_i64(tickets + 8 * i, 0)
    atomic_add(shared + GO, 1)


def run(shared, thread, yield_function):
    """Run one thread's part of a step: every operation, with a barrier before those that need one, and at the end."""
    table = get_i64(shared + TABLE)
    n_operations = get_i64(shared + TABLE + 8)
    n_threads = get_i64(shared + TABLE + 16)
    for i in range(n_operations + 1):
        operation = table + 24 * i
        if n_threads > 1 and (i == n_operations or get_i64(operation + 16) != 0):
            round = atomic_get(shared + ROUND)
            if atomic_add(shared + ARRIVED, 1) == n_threads - 1:
                atomic_put(shared + ARRIVED, 0)
                atomic_add(shared + ROUND, 1)
            else:
                spins = 0
                while atomic_get(shared + ROUND) == round:
                    spins += 1
                    if spins > 2000:  # more threads than cores
                        give_way(yield_function)
        if i < n_operations:
            invoke(get_i64(operation), get_i64(operation + 8), thread, n_threads)


_run = inline(run)


@operation(types.void, types.int64, types.int64, types.int64)
def read_clock(builder: Any, function: Any, clock: Any, place: Any) -> Any:
    """Write the seconds and nanoseconds of a clock by the system's ``clock_gettime``, if there is one (0: none)."""
    number = ir.IntType(32)
    clock_type = ir.FunctionType(number, [number, I64])
    with builder.if_then(builder.icmp_signed("!=", function, I64(0))):
        builder.call(builder.inttoptr(function, clock_type.as_pointer()), [builder.trunc(clock, number), place])


@inline
def _read_nanoseconds(function, clock, place):
    read_clock(function, clock, place)
    return np.int64(1_000_000_000) * get_i64(place) + get_i64(place + 8)


def work(shared, thread, step, result, busy, clock_function, clock, yield_function, sleep_function):
    """Run a thread's part of every step after ``step``, until none starts for a while or a step has no operations.

    ``result`` gets the number of the last step. ``busy``: a line for each thread: its core time in steps in
    nanoseconds, and from byte 16, room for the clock.
    """
    own = busy + LINE * thread
    short = SPINS + NAPS[0][0]
    polls = short + NAPS[1][0] if sleep_function != 0 else SPINS
    while True:
        for spin in range(polls):
            if atomic_get(shared + GO) != step:
                break
            if spin >= SPINS:
                nap(sleep_function, NAPS[0][1] if spin < short else NAPS[1][1])
            elif spin > 2000:
                give_way(yield_function)
        latest = atomic_get(shared + GO)
        if latest == step or get_i64(shared + TABLE + 8) == 0:
            break
        step = latest
        begun = _read_nanoseconds(clock_function, clock, own + 16)
        _run(shared, thread, yield_function)
        put_i64(own, get_i64(own) + _read_nanoseconds(clock_function, clock, own + 16) - begun)
    put_i64(result, step)
