"""HTML of results for notebooks: small, and every text in it escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape

MAX_TEXT = 20_000  # characters of a text that are shown


def text_block(text: str) -> str:
    """Return a text with its line breaks; a long one is cut, with the number of characters left out."""
    rest = f"\n… {len(text) - MAX_TEXT:,} more characters" if len(text) > MAX_TEXT else ""
    return f'<pre style="white-space: pre-wrap; margin: 0.3em 0">{escape(text[:MAX_TEXT] + rest)}</pre>'


def folded_block(title: str, text: str) -> str:
    """Return a text behind a title that opens it."""
    return f"<details><summary>{escape(title)}</summary>{text_block(text)}</details>"


def facts_line(facts: Iterable[object]) -> str:
    """Return facts in one small line; empty ones are left out."""
    return f"<small>{' · '.join(escape(str(fact)) for fact in facts if fact)}</small>"


def facts_table(title: str, facts: Mapping[str, object]) -> str:
    """Return a table with a row for each fact; empty ones are left out."""
    rows = (
        f'<tr><td style="text-align: left">{escape(name)}</td>'
        f'<td style="text-align: left">{escape(str(fact)[:MAX_TEXT])}</td></tr>'
        for name, fact in facts.items()
        if fact not in ("", None)
    )
    return f"<b>{escape(title)}</b><table>{''.join(rows)}</table>"


def show_count(n: int, noun: str) -> str:
    """Return a number with its noun: ``"1 token"``, ``"1,200 tokens"``."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"
