"""Contents of checked messages: text, or parts of text and images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def with_markers(content: Any, marker: str) -> Any:
    """Return content as text: a marker for each image, and the lines of the texts."""
    if not isinstance(content, list):
        return content
    text, after_text = "", False
    for part in content:
        is_text = part["type"] == "text"
        text += ("\n" if is_text and after_text else "") + (part["text"] if is_text else marker)
        after_text = is_text
    return text


def joined(before: Any, after: Any) -> Any:
    """Return the contents of two messages as one, with an empty line between; either may be a list of parts."""
    if isinstance(before, str) and isinstance(after, str):
        return f"{before}\n\n{after}" if before else after
    parts = [*_parts(before), *_parts(after)]
    first, second = len(_parts(before)) - 1, len(_parts(before))
    if first >= 0 and second < len(parts) and parts[first]["type"] == "text":
        parts[first] = {**parts[first], "text": parts[first]["text"] + "\n\n"}
    return parts


def _parts(content: Any) -> Sequence[Mapping[str, str]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    parts: Sequence[Mapping[str, str]] = content
    return parts
