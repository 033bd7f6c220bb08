"""A worker process: reads calls from standard input, and writes results to standard output, one at a time.

It ends with its input, so it outlives its parent by at most one call.
"""

from __future__ import annotations

import contextlib
import sys

import msgspec

from pumice.errors import PumiceError, to_plain
from pumice.isolation.limits import CallLimits, allow_seconds, confine
from pumice.isolation.wire import TaskCall, TaskResult, decode, encode, read_frame, take_standard_streams, write_frame
from pumice.lazy import resolve

_HEAD = 1 << 10  # bytes of a frame beside a payload or a result


def main(argument: str) -> None:
    with contextlib.suppress(BrokenPipeError):  # the parent was killed during a call
        _work(argument)


def _work(argument: str) -> None:
    calls, answers = take_standard_streams()
    limits = msgspec.json.decode(argument, type=CallLimits)
    confine(limits)
    while (frame := read_frame(calls, limits.max_in + _HEAD)) is not None:
        allow_seconds(limits.cpu_seconds)
        try:
            answer = _answer(frame, limits)
        except MemoryError:
            message = f"takes more than {limits.memory >> 20} MiB of memory: send less"
            write_frame(answers, encode(TaskResult(error="TooExpensiveError", arguments=[message])))
            return  # the remaining memory may be too small for the next call
        write_frame(answers, encode(answer))


def _answer(frame: bytes, limits: CallLimits) -> TaskResult:
    try:
        call = decode(frame, TaskCall)
        result = encode(resolve(call.task)(decode(call.payload, object)))
    except MemoryError:
        raise
    except PumiceError as error:
        kind, arguments = to_plain(error)
        return TaskResult(error=kind, arguments=arguments)
    except Exception as error:
        return TaskResult(error="EngineError", arguments=[f"failed: {type(error).__name__}: {error}"])
    if len(result) > limits.max_out - _HEAD:
        return TaskResult(
            error="TooExpensiveError", arguments=[f"returns {len(result)} bytes, but the limit is {limits.max_out}"]
        )
    return TaskResult(msgspec.Raw(result))


if __name__ == "__main__":
    main(sys.argv[1])
