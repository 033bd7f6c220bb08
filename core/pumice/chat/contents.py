"""Contents of checked messages: text, or parts of text, images and sounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Content = str | Sequence[Mapping[str, str]]
"""Content of a checked message: text, or parts of the types "text", "image", "audio" and "video"."""


def with_markers(content: Content, marker: str) -> str:
    """Return content as text: a marker for each image, sound and video, and the lines of the texts."""
    if isinstance(content, str):
        return content
    text, after_text = "", False
    for part in content:
        is_text = part["type"] == "text"
        text += ("\n" if is_text and after_text else "") + (part["text"] if is_text else marker)
        after_text = is_text
    return text


def joined(before: Content, after: Content) -> Content:
    """Return the contents of two messages as one, with an empty line between; either may be a list of parts."""
    if isinstance(before, str) and isinstance(after, str):
        return f"{before}\n\n{after}" if before else after
    first, second = list(_parts(before)), _parts(after)
    if first and second and first[-1]["type"] == "text":
        first[-1] = {**first[-1], "text": first[-1]["text"] + "\n\n"}
    return [*first, *second]


def _parts(content: Content) -> Sequence[Mapping[str, str]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return content
