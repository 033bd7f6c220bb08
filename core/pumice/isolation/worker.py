"""A worker process: calls come by standard input, answers go by standard output, one at a time.

It ends when its input does, so it does not outlive the process that started it by more than a call.
"""

from __future__ import annotations

import sys

import msgspec

from pumice.errors import PumiceError
from pumice.isolation.limits import Limits, allow_seconds, confine
from pumice.isolation.wire import Answer, Call, decode, encode, read_frame, take_standard_streams, write_frame
from pumice.lazy import resolve

_HEAD = 1 << 10  # bytes of a frame beside a payload or a result


def main(argument: str) -> None:
    calls, answers = take_standard_streams()
    limits = msgspec.json.decode(argument, type=Limits)
    confine(limits)
    while (frame := read_frame(calls, limits.max_in + _HEAD)) is not None:
        allow_seconds(limits.cpu_seconds)
        try:
            answer = _answer(frame, limits)
        except MemoryError:
            message = f"takes more than {limits.memory >> 20} MiB of memory: send less"
            write_frame(answers, encode(Answer(error="TooExpensiveError", message=message)))
            return  # what is left of memory may be too little for the next call
        write_frame(answers, encode(answer))


def _answer(frame: bytes, limits: Limits) -> Answer:
    try:
        call = decode(frame, Call)
        result = encode(resolve(call.task)(decode(call.payload, object)))
    except MemoryError:
        raise
    except PumiceError as error:
        return Answer(error=type(error).__name__, message=str(error))
    except Exception as error:
        return Answer(error="EngineError", message=f"fails: {type(error).__name__}: {error}")
    if len(result) > limits.max_out - _HEAD:
        return Answer(error="TooExpensiveError", message=f"gives {len(result)} bytes, at most {limits.max_out}")
    return Answer(msgspec.Raw(result))


if __name__ == "__main__":
    main(sys.argv[1])
