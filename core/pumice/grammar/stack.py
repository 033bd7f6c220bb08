"""Work on a thread whose stack has a size of its own: compilers recurse as deeply as what they compile is nested."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")

_starting = threading.Lock()


def run_on_stack(size: int, work: Callable[[], T]) -> T:
    """Return what ``work`` returns, or raise what it raises; ``size``: bytes of the stack."""
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    thread = threading.Thread(target=run, name="pumice-grammar", daemon=True)
    with _starting:
        usual = threading.stack_size(size)
        try:
            thread.start()
        finally:
            threading.stack_size(usual)
    return done.result()
