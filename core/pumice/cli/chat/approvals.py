"""The user's consent to calls of tools, asked for in the terminal."""

from __future__ import annotations

import asyncio
import contextlib
import os

from pumice.mcp import ServerTool
from pumice.wording import printable

_MAX_SHOWN = 4000  # characters of arguments
_QUESTION = "run it? [y]es, [a]lways, [n]o, ne[v]er: "
_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"


class Approvals:
    """Asks before each call, unless the configuration or the user allows the tool; shows every call that runs.

    Args:
        terminal: descriptor from which answers are read, one line each; None if there is nobody to ask.
        output: descriptor to which calls and questions are written.
    """

    def __init__(self, terminal: int | None, output: int = 2) -> None:
        self._terminal = terminal
        self._output = output
        self._decided: dict[str, bool] = {}  # by a tool's name: always or never
        self._lock = asyncio.Lock()  # one question at a time

    async def refusal(self, tool: ServerTool, arguments: str) -> str:
        """Return why a call must not run, for the model; an empty string if it may."""
        call = f"{tool.server}: {tool.own_name} {_shown(arguments)}"
        if self._decided.get(tool.name, tool.allowed):
            self._write(f"{_DIM}{printable(call)}{_PLAIN}\n")
            return ""
        if tool.name in self._decided:
            return "the user does not allow this tool"
        if self._terminal is None:
            self._write(f"refused, since nobody can be asked: {printable(call)}; alwaysAllow in its file allows it\n")
            return "the user could not be asked for consent"
        async with self._lock:
            answer = await self._ask(f"{printable(call)}\n{_QUESTION}")
        if answer in ("a", "always", "v", "never"):
            self._decided[tool.name] = answer in ("a", "always")
        return "" if answer in ("y", "yes", "a", "always") else "the user refused this call"

    async def _ask(self, question: str) -> str:
        """Return the user's answer in lower case; empty at the end of input."""
        assert self._terminal is not None
        _discard_input(self._terminal)  # what was typed before the question answers nothing
        self._write(question)
        loop = asyncio.get_running_loop()
        typed: asyncio.Future[bytes] = loop.create_future()
        loop.add_reader(self._terminal, self._read, typed)
        try:
            return (await typed).decode(errors="replace").strip().lower()
        finally:
            loop.remove_reader(self._terminal)

    def _read(self, typed: asyncio.Future[bytes]) -> None:
        assert self._terminal is not None
        try:
            line = os.read(self._terminal, 1 << 12)
        except OSError:
            line = b""  # the terminal is gone
        if not typed.done():
            typed.set_result(line)

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError):
            os.write(self._output, text.encode(errors="replace"))


def _shown(arguments: str) -> str:
    if len(arguments) <= _MAX_SHOWN:
        return arguments
    return f"{arguments[:_MAX_SHOWN]} [cut: {len(arguments)} characters]"


def _discard_input(terminal: int) -> None:
    import termios

    with contextlib.suppress(termios.error):
        termios.tcflush(terminal, termios.TCIFLUSH)
