"""Progress on standard error: a bar on a terminal, elsewhere a line for what takes long."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from pumice.cli.output import echo

if TYPE_CHECKING:
    from tqdm import tqdm

_LONG_SECONDS = 10
_STYLE: dict[str, Any] = {"leave": False}


@contextmanager
def show_progress(title: str, unit: str = "B") -> Iterator[Callable[[int, int], None]]:
    """Yield a function that shows a progress bar; its arguments are the amount done and the total.

    Where standard error is no terminal, one line says that the work goes on after ``_LONG_SECONDS``.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        timer = threading.Timer(
            _LONG_SECONDS, echo, [f"{title}: still running after {_LONG_SECONDS} seconds"], {"err": True}
        )
        timer.daemon = True
        timer.start()
        try:
            yield lambda done, total: None
        finally:
            timer.cancel()
        return
    with ExitStack() as stack:
        bars: list[tqdm[NoReturn]] = []  # empty until the first call

        def progress(done: int, total: int) -> None:
            if not bars:
                from tqdm import tqdm

                bar = tqdm(desc=title, total=total, unit=unit, unit_scale=unit == "B", **_STYLE)
                bars.append(stack.enter_context(bar))
            bars[0].total = total
            bars[0].update(done - bars[0].n)

        yield progress


@contextmanager
def download_bar() -> Iterator[Callable[[str, int, int], None]]:
    """Yield a function that shows a download; it takes the file's name, the bytes downloaded and the total bytes."""
    with ExitStack() as stack:
        bars: list[Callable[[int, int], None]] = []

        def show(name: str, done: int, total: int) -> None:
            if not bars:
                bars.append(stack.enter_context(show_progress(name)))
            bars[0](done, total)

        yield show
