"""The part of an error message that helps with a misspelt name."""

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``"; did you mean 'temperature'?"`` for a name close to a known one, else an empty string."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def unknown_name(what: str, name: str, known: Iterable[str]) -> str:
    """One line about an unknown name: the nearest known one, and all of them."""
    known = sorted(known)
    return f"unknown {what} {name!r}{did_you_mean(name, known)} (known: {', '.join(known) or 'none'})"
