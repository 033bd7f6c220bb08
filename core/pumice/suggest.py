"""The part of an error message that helps with a misspelt name."""

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``"; did you mean 'temperature'?"`` for a name close to a known one, or the beginning of one, else nothing."""
    known = list(known)
    longer = [other for other in known if name and other.startswith(name)]
    close = longer or difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def unknown_name(what: str, name: str, known: Iterable[str]) -> str:
    """One line about an unknown name: the nearest known one, and all of them."""
    known = sorted(known)
    return f"unknown {what} {name!r}{did_you_mean(name, known)} (known: {', '.join(known) or 'none'})"
