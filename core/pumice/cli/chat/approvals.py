"""The user's consent to calls of tools, asked for in the terminal."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Iterator, Mapping

from pumice.mcp import ServerTool
from pumice.wording import printable

_MAX_KEYS = 64  # of a call's arguments, each of which is shown
_MAX_KEY = 200  # characters
_BEGIN, _END = 1000, 500  # characters that are shown of a longer value
_MAX_LINE = 1 << 12  # bytes of an answer
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

    async def refusal(self, tool: ServerTool, arguments: Mapping[str, object]) -> str:
        """Return why a call with exactly these arguments must not run, for the model; an empty string if it may."""
        if len(arguments) > _MAX_KEYS or any(len(key) > _MAX_KEY for key in arguments):
            return f"the user is shown at most {_MAX_KEYS} arguments, with names of at most {_MAX_KEY} characters"
        lines = [f"{tool.server}: {tool.own_name}", *(_shown(key, value) for key, value in arguments.items())]
        call = "\n  ".join(map(printable, lines))
        if self._decided.get(tool.name, tool.allowed):
            self._write(f"{_DIM}{call}{_PLAIN}\n")
            return ""
        if tool.name in self._decided:
            return "the user does not allow this tool"
        if self._terminal is None:
            self._write(f"refused, since nobody can be asked: {call}; alwaysAllow in its file allows it\n")
            return "the user could not be asked for consent"
        async with self._lock:
            answer = await self._ask(f"{call}\n{_QUESTION}")
        if answer in ("a", "always", "v", "never"):
            self._decided[tool.name] = answer in ("a", "always")
        return "" if answer in ("y", "yes", "a", "always") else "the user refused this call"

    async def _ask(self, question: str) -> str:
        """Return the user's answer in lower case; empty at the end of input."""
        assert self._terminal is not None
        with _line_mode(self._terminal):  # discards what was typed before the question
            self._write(question)
            loop = asyncio.get_running_loop()
            typed: asyncio.Future[bytes] = loop.create_future()
            loop.add_reader(self._terminal, self._read, typed, bytearray())
            try:
                return (await typed).decode(errors="replace").strip().lower()
            finally:
                loop.remove_reader(self._terminal)

    def _read(self, typed: asyncio.Future[bytes], line: bytearray) -> None:
        """Read more of a line; the answer is one that ends, and empty at the end of input."""
        assert self._terminal is not None
        try:
            part = os.read(self._terminal, _MAX_LINE)
        except OSError:
            part = b""  # the terminal is gone
        line += part
        ended = b"\n" in line
        if not typed.done() and (ended or not part or len(line) > _MAX_LINE):
            typed.set_result(bytes(line).partition(b"\n")[0] if ended else b"")

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError):
            os.write(self._output, text.encode(errors="replace"))


def _shown(key: str, value: object) -> str:
    """Return an argument as a text of one line before ``printable``; a long value without its middle."""
    name = key if key.isidentifier() else json.dumps(key, ensure_ascii=False)
    text = json.dumps(value, ensure_ascii=False)
    n_left_out = len(text) - _BEGIN - _END
    if n_left_out > 0:
        text = f"{text[:_BEGIN]}[… {n_left_out} characters …]{text[-_END:]}"
    return f"{name}={text}"


@contextlib.contextmanager
def _line_mode(terminal: int) -> Iterator[None]:
    """Discard typed input, and set the terminal to echo and to line mode, in place of the mode of the chat."""
    import termios

    try:
        before = termios.tcgetattr(terminal)
    except termios.error:  # it is gone
        yield
        return
    lines = [before[0] | termios.ICRNL, before[1], before[2], before[3] | termios.ICANON | termios.ECHO, *before[4:]]
    try:
        with contextlib.suppress(termios.error):
            termios.tcsetattr(terminal, termios.TCSANOW, lines)
            termios.tcflush(terminal, termios.TCIFLUSH)  # TCSAFLUSH leaves what a pseudoterminal has not passed on
        yield
    finally:
        with contextlib.suppress(termios.error):
            termios.tcsetattr(terminal, termios.TCSANOW, before)
