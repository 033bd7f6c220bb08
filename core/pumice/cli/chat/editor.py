"""Line input of the chat: editing, completion, and a persistent history."""

from __future__ import annotations

import sys

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import create_output

from pumice.cli.chat.history import history_file
from pumice.cli.chat.session import HELP


class Editor:
    """Reads messages of one or several lines."""

    def __init__(self) -> None:
        """Use the terminal; the prompt goes to standard error."""
        self._session: PromptSession[str] = PromptSession(
            [("bold ansicyan", ">>> ")],
            multiline=True,
            prompt_continuation="... ",
            history=_history(),
            completer=WordCompleter([name.split()[0] for name in HELP], sentence=True),
            complete_while_typing=Condition(lambda: self._session.default_buffer.text.startswith("/")),
            key_bindings=_keys(),
            output=create_output(sys.stderr),
        )

    def read(self) -> str:
        """Return the next message. Raises EOFError at Ctrl-D, KeyboardInterrupt at Ctrl-C."""
        return self._session.prompt()

    def edit(self, text: str) -> str:
        """Return ``text`` as the user changed it. Raises as ``read``."""
        return self._session.prompt(default=text)


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def _send(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.current_line_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _next_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys


def _history() -> History:
    """Return the history in the user's state folder, or in memory if that is not writable."""
    path = history_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))
