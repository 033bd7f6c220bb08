"""Markdown on a terminal while it is generated: finished pieces stay, the last one is overwritten in place."""

from __future__ import annotations

import re
import time
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from pumice.cli.chat.markdown import Leaf, Renderer, parse
from pumice.cli.output import on_terminal

_UNDECIDED = re.compile(r"[-*_=+#>`~|:\d.)\s\\<\[!]*")  # the beginning of a line that more text may change to anything
_OPEN_ENDED = ("text", "heading")  # kinds of leaves that can be cut between two words
_IDLE_RATIO: Final = 4  # time between two updates, in times that an update took


class StreamingMarkdown:
    """Shows a text that grows.

    Leaves (paragraphs, items, lines of code) are written once they are complete and never again. Of the last leaf, only
    lines that change are written over. It never has more lines than the screen: what has left the screen cannot change.

    Args:
        write: Writes to the terminal; the cursor is at the beginning of a line.
        columns: Width of the terminal.
        rows: Height of the terminal.
    """

    def __init__(self, write: Callable[[str], None], columns: int, rows: int) -> None:
        self._write = write
        self._rows = max(rows - 1, 2)
        self._renderer = Renderer(columns)
        self._source = ""
        self._n_shown = 0  # leaves of the source that are complete and written
        self._n_skipped = 0  # characters of the leaf after them that are written
        self._n_blocks = 0  # of code, before the source
        self._live: list[str] = []  # lines of the last leaf, in the last of which the cursor is
        self._has_text = False
        self._next_update = 0.0

    def add(self, text: str) -> None:
        """Show more text, or a little later if updates take long."""
        self._source += on_terminal(text)
        now = time.monotonic()
        if now >= self._next_update:
            self._update(final=False)
            ended = time.monotonic()
            self._next_update = ended + _IDLE_RATIO * (ended - now)

    def end(self) -> None:
        """Show all of the text; the cursor is then at the beginning of a line."""
        self._update(final=True)
        if self._live:
            self._write("\n")
        self._live = []
        self._source, self._n_shown, self._n_skipped = "", 0, 0

    def _update(self, final: bool) -> None:
        source = self._source
        if not final and _UNDECIDED.fullmatch(source, source.rfind("\n") + 1):
            source = source[: source.rfind("\n") + 1]
        document = parse(source, self._n_blocks)
        for leaf in document.leaves[self._n_shown : -1]:
            self._finish(leaf)
        if document.leaves:
            self._show_last(document.leaves[-1], final)
        if document.n_finished and document.n_finished <= self._n_shown:
            self._source = self._source.split("\n", document.last_line)[-1]
            self._n_shown -= document.n_finished
            self._n_blocks = document.n_blocks

    def _finish(self, leaf: Leaf) -> None:
        """Write a leaf for good, and begin a line."""
        self._draw(self._lines(leaf))
        self._begin_line()
        self._n_shown += 1
        self._n_skipped = 0

    def _show_last(self, leaf: Leaf, final: bool) -> None:
        lines = self._lines(leaf if final else _balanced(leaf))
        while leaf.kind in _OPEN_ENDED and len(lines) > self._rows and self._cut(leaf):
            lines = self._lines(leaf if final else _balanced(leaf))
        self._draw(lines if final else lines[: self._rows])

    def _cut(self, leaf: Leaf) -> bool:
        """Write the beginning of a leaf for good, and go on with the rest in a new line. Returns False for one word."""
        begin = self._n_skipped
        ends = [begin + match.end() for match in re.finditer(r"\s+", leaf.source[begin:])]
        n_fitting = bisect_right(ends, self._rows, key=lambda end: len(self._lines(_until(leaf, end))))
        if not n_fitting:
            return False
        end = ends[n_fitting - 1]
        self._draw(self._lines(_until(leaf, end)))
        self._begin_line()
        self._n_skipped = end
        return True

    def _begin_line(self) -> None:
        self._write("\n")
        self._live = []
        self._has_text = True

    def _lines(self, leaf: Leaf) -> list[str]:
        """Return the lines of a leaf that are not yet written."""
        if self._n_skipped:
            rest = leaf.source[self._n_skipped :]
            return self._renderer.lines(replace(leaf, source=rest, first=leaf.rest))
        gap = [leaf.rest.rstrip() if leaf.first == leaf.rest else ""] if leaf.gap and self._has_text else []
        return [*gap, *self._renderer.lines(leaf)]

    def _draw(self, lines: list[str]) -> None:
        """Write lines in place of the live ones, from the first that differs."""
        old = self._live
        n_same = 0
        while n_same < min(len(old), len(lines)) and old[n_same] == lines[n_same]:
            n_same += 1
        if n_same == len(old) == len(lines):
            return
        parts = []
        if n_same < len(old):
            up = len(old) - 1 - n_same
            parts.append(f"\x1b[{up}A\r" if up else "\r")
        elif old:
            parts.append("\n")
        changed = lines[n_same:]
        parts.append("\n".join(f"{line}\x1b[K" for line in changed))
        if len(lines) < len(old):
            parts.append("\x1b[J" if changed else "\x1b[A\x1b[J")
        self._write("".join(parts))
        self._live = lines


def _until(leaf: Leaf, end: int) -> Leaf:
    return replace(leaf, source=leaf.source[:end].rstrip())


def _balanced(leaf: Leaf) -> Leaf:
    """Return an unfinished leaf with its open marks closed, so that marks do not come and go."""
    if leaf.kind not in _OPEN_ENDED:
        return leaf
    source = leaf.source.rstrip("*_`~")
    for mark in ("`", "**"):
        if source.count(mark) % 2:
            source = f"{source}{mark}"
    return replace(leaf, source=source)
