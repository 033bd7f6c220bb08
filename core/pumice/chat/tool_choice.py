"""The choice of tools in a request: OpenAI's ``tool_choice`` and ``allowed_tools``."""

from __future__ import annotations

from collections.abc import Mapping

from pumice.chat.bounds import MAX_ALLOWED
from pumice.errors import RequestError

_CHOICES = ("auto", "none", "required")


def split_choice(choice: object) -> tuple[list[object] | None, object]:
    """Return the tools that OpenAI's ``allowed_tools`` names and its mode; None and the choice if it is another.

    Raises RequestError for an ``allowed_tools`` without a list, or with too many tools.
    """
    if not isinstance(choice, Mapping) or choice.get("type") != "allowed_tools":
        return None, choice
    inner = choice.get("allowed_tools", choice)
    allowed = inner.get("tools") if isinstance(inner, Mapping) else None
    if not isinstance(allowed, list):
        raise RequestError("tool_choice: 'allowed_tools' needs a mode and a list of tools")
    if len(allowed) > MAX_ALLOWED:
        raise RequestError(f"tool_choice: {len(allowed)} allowed tools; at most {MAX_ALLOWED} are accepted")
    return allowed, inner.get("mode", "auto")


def chosen_names(choice: object) -> set[str]:
    """Return the names of tools in a ``tool_choice``. Raises RequestError unless it is in a known form."""
    allowed, mode = split_choice(choice)
    return {name for item in (mode, *(allowed or ())) if (name := read_choice(item)[1])}


def read_choice(choice: object) -> tuple[str, str | None]:
    """Return the mode of calling tools, and the name of the chosen tool, if any. Raises RequestError."""
    if isinstance(choice, Mapping):
        function = choice.get("function")
        name = function.get("name") if isinstance(function, Mapping) else choice.get("name")
    else:
        name = choice
    if not isinstance(name, str):
        raise RequestError('tool_choice: expected "auto", "none", "required" or the name of a tool')
    return (name, None) if name is choice and name in _CHOICES else ("required", name)
