"""Ways to show an answer: as it is to a file or a pipe, wrapped or as formatted Markdown to a terminal."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys

import click

from pumice.cli.output import echo_exact, on_terminal


class Shown:
    """Writes the content of an answer to standard output that is a file or a pipe, without reasoning."""

    def reason(self, text: str) -> None:
        """Show more of the reasoning."""

    def say(self, text: str) -> None:
        """Show more of the content."""
        echo_exact(text, nl=False)

    def end(self) -> None:
        """Show the rest; no text follows."""


class ShownOnTerminal(Shown):
    """Writes an answer and its dimmed reasoning to a terminal, wrapped at words, without leading white space."""

    def __init__(self) -> None:
        from pumice.cli.chat.wrap import Wrapper

        self._wrapper = Wrapper(shutil.get_terminal_size().columns)
        self._has_reasoning = self._has_content = False

    def reason(self, text: str) -> None:
        text = on_terminal(text if self._has_reasoning else text.lstrip())
        self._has_reasoning = self._has_reasoning or bool(text)
        _write(click.style(self._wrapper.add(text), dim=True))

    def say(self, text: str) -> None:
        text = on_terminal(text)
        if not self._has_content:
            text = text.lstrip()
            self._has_content = bool(text)
            if text and self._has_reasoning:
                self._end_reasoning()
        if text:
            self._write_content(text)

    def end(self) -> None:
        if self._has_reasoning or self._has_content:
            _write("\n")

    def _end_reasoning(self) -> None:
        _write(self._wrapper.add("\n\n"))

    def _write_content(self, text: str) -> None:
        _write(self._wrapper.add(text))


class ShownMarkdown(ShownOnTerminal):
    """Writes an answer as formatted Markdown."""

    def __init__(self) -> None:
        super().__init__()
        from pumice.cli.chat.streaming_markdown import StreamingMarkdown

        size = shutil.get_terminal_size()
        self._markdown = StreamingMarkdown(_write, size.columns, size.lines)

    def _write_content(self, text: str) -> None:
        self._markdown.add(text)

    def end(self) -> None:
        if self._has_content:
            self._markdown.end()
        else:
            super().end()


def shown(markdown: bool) -> Shown:
    """Return the way to show an answer on standard output; ``markdown`` has an effect on a terminal alone."""
    if not sys.stdout.isatty():
        return Shown()
    can_move = os.environ.get("TERM") != "dumb"
    return ShownMarkdown() if markdown and can_move and has_markdown() else ShownOnTerminal()


def has_markdown() -> bool:
    """Return True if the packages of the extra ``markdown`` are installed."""
    return all(importlib.util.find_spec(name) for name in ("rich", "markdown_it"))


def _write(text: str) -> None:
    click.echo(text.encode("utf-8", "replace"), nl=False)  # noqa: TID251 (what was made for a terminal)
