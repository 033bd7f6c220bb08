"""The file that keeps the lines of earlier chats, and the folder of kept conversations."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def history_file() -> Path:
    """Return the history in the user's state folder."""
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "pumice" / "chat_history"


def sessions_folder() -> Path:
    """Return the folder of conversations that chats keep by name."""
    return history_file().parent / "chats"


def make_history() -> Path:
    """Create the history if it is missing and its folder is writable, and return its path."""
    path = history_file()
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
    return path
