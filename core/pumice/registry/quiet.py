"""Standard output while plugins are imported: it is for text and JSON, which another thread may be writing."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import Any, TextIO

_changing = threading.Lock()


class _Divided:
    """Standard output, which is standard error for threads in ``quiet``, each as often as it has entered."""

    def __init__(self, output: TextIO) -> None:
        self.output = output
        self.quiet: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stderr if threading.get_ident() in self.quiet else self.output, name)


@contextlib.contextmanager
def quiet_stdout() -> Iterator[None]:
    """Redirect what this thread prints to standard error, and leave the output of other threads alone.

    ``contextlib.redirect_stdout`` redirects all threads, and for ever if two of them leave in the order of entering.
    """
    if sys.stdout is None or sys.stderr is None:  # closed: `print` writes nothing
        yield
        return
    thread = threading.get_ident()
    with _changing:
        current: Any = sys.stdout
        divided = current if isinstance(current, _Divided) else _Divided(current)
        divided.quiet.append(thread)
        sys.stdout = divided
    try:
        yield
    finally:
        with _changing:
            divided.quiet.remove(thread)
            if not divided.quiet and sys.stdout is divided:
                sys.stdout = divided.output
