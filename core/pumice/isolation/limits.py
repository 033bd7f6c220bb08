"""Limits of a call, and of its process, which are set before it reads any input."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass

from pumice.sandbox import SWITCH, Launch, Policy, enforce, python_access

_VARIABLES = (
    "PATH",
    "HOME",
    "USERPROFILE",
    "APPDATA",
    "SYSTEMROOT",
    "LD_LIBRARY_PATH",
    "DYLD_LIBRARY_PATH",
    "TZ",
    SWITCH,
)


@dataclass(frozen=True)
class CallLimits:
    """The resource limits of a call.

    Attributes:
        cpu_seconds: processor time in whole seconds. A call that needs more is too expensive.
        wall_seconds: time for the result. A worker without a processor exceeds it; a stopped worker (SIGSTOP) is killed
            a second after its processor time would be over, and its call is repeated.
        wait_seconds: time to wait for a free worker.
        memory: address space of a worker in bytes.
        max_in, max_out: encoded size of the payload and of the result in bytes.
        max_values: values in the payload, counting lists, objects and their items.
        max_small: encoded size of a small payload in bytes. One worker is reserved for small payloads.
        max_large: concurrent calls with larger payloads, including waiting ones. Further ones are refused at once, so
            that threads remain for callers with small payloads.
    """

    cpu_seconds: int = 5
    wall_seconds: float = 60.0
    wait_seconds: float = 10.0
    memory: int = 1 << 30
    max_in: int = 1 << 25
    max_out: int = 1 << 26
    max_values: int = 250_000
    max_small: int = 1 << 17
    max_large: int = 4


def launch_worker(limits: bytes) -> Launch:
    """Return how to start a worker; ``limits`` is JSON.

    It inherits only the environment variables that Python needs, and so no keys and tokens.
    """
    variables = {name: text for name, text in os.environ.items() if name in _VARIABLES or name.startswith("PYTHON")}
    return Launch([sys.executable, "-P", "-m", "pumice.isolation.worker", limits.decode()], variables)


def confine(limits: CallLimits) -> None:
    """Confine this worker's process before it reads a request: it may read Python's import path, and write nothing."""
    enforce(Policy(python_access(), limits={"AS": limits.memory, "FSIZE": 0}))


def allow_seconds(seconds: int) -> None:
    """Let the system end this process by SIGXCPU after ``seconds`` more of processor time."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(time.process_time()) + seconds, hard))


def measure(value: object, most: int) -> tuple[int, int]:
    """Return the number of values in a value, including itself, and of characters in its texts and keys.

    It does not recurse, and stops after more than ``most`` values.
    """
    count, characters, rest = 0, 0, [iter((value,))]
    while rest:
        for item in rest[-1]:
            count += 1
            if count > most:
                return count, characters
            if isinstance(item, str):
                characters += len(item)
            if is_dataclass(item):
                item = vars(item)
            if isinstance(item, Mapping):
                characters += sum(len(key) for key in item if isinstance(key, str))
                rest.append(iter(item.values()))
                break
            if isinstance(item, list | tuple):
                rest.append(iter(item))
                break
        else:
            rest.pop()
    return count, characters
