"""File names from outside, before they become paths; and paths without links."""

from __future__ import annotations

import os
import re
from pathlib import Path

NO_FILE = "no such file"
_MAX_PART, _MAX_NAME = 255, 1024  # bytes of UTF-8, which file systems allow
_FORBIDDEN = re.compile(r'[\\:*?"<>|]')  # on Windows: separators, drives and streams, wildcards
_DEVICE = re.compile(r"(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³]|conin\$|conout\$)", re.IGNORECASE)


def is_safe_file_name(name: str) -> bool:
    """True if ``name`` is a relative path with ``/`` that stays in its folder, on every system.

    Refused are absolute paths, ``.`` and ``..``, empty parts, control characters and lone surrogates, separators,
    wildcards and device names of Windows, parts that end with a dot or a space, and names too long for a file system.
    """
    if not name.isprintable() or len(name.encode()) > _MAX_NAME or _FORBIDDEN.search(name):
        return False
    return all(_is_safe_part(part) for part in name.split("/"))


def real_path(path: str | os.PathLike[str]) -> Path:
    """Return a path without links. Links that lead to each other stay, where ``Path.resolve`` raises RuntimeError."""
    return Path(os.path.realpath(path))


def why_absent(path: str | os.PathLike[str]) -> str:
    """Return why a path leads to no file, such as "no such file"; empty if it leads to one, or to a folder."""
    try:
        os.stat(path)
    except FileNotFoundError:
        return NO_FILE
    except OSError as error:  # links that lead to each other
        return (error.strerror or str(error)).lower()
    return ""


def _is_safe_part(part: str) -> bool:
    """True for a name without separators. A device of Windows is one with any ending."""
    if not part or part[-1] in ". " or len(part.encode()) > _MAX_PART:
        return False
    return not _DEVICE.fullmatch(part.partition(".")[0].rstrip())
