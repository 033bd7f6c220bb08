"""The part of an error message that helps with a misspelt name."""

import difflib
from collections.abc import Collection, Iterable

_LONGEST = 100  # characters of a name that is compared: that takes quadratic time
_MOST_KNOWN = 64  # names in a message


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``"; did you mean 'temperature'?"`` for a name close to a known one, or the beginning of one, else nothing."""
    known = list(known)
    longer = [other for other in known if name and other.startswith(name)]
    close = longer or difflib.get_close_matches(name[:_LONGEST], [other[:_LONGEST] for other in known], n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def unknown_name(what: str, name: str, known: Iterable[str], never: Collection[str] = ()) -> str:
    """One line about an unknown name: the nearest known one, but for those of ``never``, and all of them."""
    known = sorted(known)
    hint = did_you_mean(name, [other for other in known if other not in never])
    shown = ", ".join(known[:_MOST_KNOWN]) + (", ..." if len(known) > _MOST_KNOWN else "")
    return f"unknown {what} {name[:_LONGEST]!r}{hint} (known: {shown or 'none'})"
