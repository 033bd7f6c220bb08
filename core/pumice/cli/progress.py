"""Progress bars on standard error, shown only on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from tqdm import tqdm

_STYLE: dict[str, Any] = {"leave": False}


@contextmanager
def show_progress(title: str, unit: str = "B") -> Iterator[Callable[[int, int], None]]:
    """Yield a function that shows a progress bar; it takes the amount done and the total."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda done, total: None
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
