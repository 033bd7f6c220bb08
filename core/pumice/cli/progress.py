"""Progress bars on standard error, where that is a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from tqdm import tqdm

_STYLE: dict[str, Any] = {"leave": False, "disable": None}


@contextmanager
def show_progress(what: str, unit: str = "B") -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error, where that is a terminal, for what is called with how much is done, and of how much."""
    from tqdm import tqdm

    with ExitStack() as stack:
        bars: list[tqdm[NoReturn]] = []  # none before there is something to show

        def progress(done: int, total: int) -> None:
            if not bars:
                bars.append(stack.enter_context(tqdm(desc=what, unit=unit, unit_scale=unit == "B", **_STYLE)))
            bars[0].total = total
            bars[0].update(done - bars[0].n)

        yield progress


@contextmanager
def download_bar() -> Iterator[Callable[[str, int, int], None]]:
    """What shows a download, once there is one: called with a file, the bytes done and the bytes in all."""
    with ExitStack() as stack:
        bars: list[Callable[[int, int], None]] = []

        def show(what: str, done: int, total: int) -> None:
            if not bars:
                bars.append(stack.enter_context(show_progress(what)))
            bars[0](done, total)

        yield show
