"""Run work on a thread with a stack of a given size: compilers recurse as deeply as their input is nested."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")

_starting = threading.Lock()


def run_on_stack(size: int, work: Callable[[], T]) -> T:
    """Return the result of ``work``, or raise its error. ``size``: bytes of the stack."""
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    thread = threading.Thread(target=run, name="pumice-grammar", daemon=True)
    with _starting:
        default = threading.stack_size(size)
        try:
            thread.start()
        finally:
            threading.stack_size(default)
    return done.result()
