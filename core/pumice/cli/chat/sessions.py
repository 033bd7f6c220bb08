"""Conversations that a chat keeps by name in the user's state folder, to be resumed."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any

from pumice.cli.chat.files import SUFFIX, conversation_names, read_conversation, write_conversation
from pumice.cli.chat.history import sessions_folder
from pumice.errors import PumiceError

LAST = "last"
"""Name of the latest conversation."""

_NAME = re.compile(r"[^\W_][\w-]{0,63}")


def check_session_name(name: str) -> str:
    """Return a name. Raises PumiceError if it is not 1 to 64 letters, digits, hyphens and underscores."""
    if not _NAME.fullmatch(name):
        raise PumiceError(f"{name!r:.80} is no name of a conversation: use up to 64 letters, digits, - and _")
    return name


def session_names() -> list[str]:
    """Return the names of kept conversations, the latest first."""
    return [name for name in conversation_names() if _NAME.fullmatch(name)]


def make_sessions_folder() -> None:
    """Create the folder of conversations, for this user alone, if it is missing and can be created."""
    with contextlib.suppress(OSError):
        sessions_folder().mkdir(mode=0o700, parents=True, exist_ok=True)


def read_session(name: str) -> list[dict[str, Any]]:
    """Return the messages of a conversation. Raises PumiceError if there is none of this name, or it is damaged."""
    path = _path(name)
    try:
        return read_conversation(path)
    except PumiceError as error:
        if "No such file" in str(error):
            if name == LAST:
                raise PumiceError(
                    f"no conversation is kept in {path.parent} yet; pumice chat keeps the next one"
                ) from None
            raise PumiceError(f"no conversation is kept as {name!r} in {path.parent}") from None
        raise


def write_session(name: str, messages: list[dict[str, Any]]) -> None:
    """Keep messages under a name, and as the latest conversation. Raises PumiceError."""
    for session in {name, LAST}:
        write_conversation(_path(session), messages)


def _path(name: str) -> Path:
    return sessions_folder() / f"{check_session_name(name)}{SUFFIX}"
