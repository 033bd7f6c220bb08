"""Parts of the programs: the address of the server, a chat, a tool, and a line of report for each feature."""

import atexit
import os
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.request
from collections.abc import Callable, Iterable, Sequence
from typing import Any

URL = os.environ["PUMICE_URL"]
MODEL = os.environ["PUMICE_MODEL"]
MESSAGES: Any = [{"role": "user", "content": "Once upon a time"}]
CITY: Any = {"city": {"type": "string", "enum": ["Paris", "Rome"]}}
SCHEMA: Any = {"type": "object", "properties": CITY, "required": ["city"], "additionalProperties": False}
FUNCTION: Any = {"name": "get_weather", "description": "Tell the weather of a city", "parameters": SCHEMA}
TOOL: Any = {"type": "function", "function": FUNCTION}
CHOICE: Any = {"type": "function", "function": {"name": "get_weather"}}
FORM: Any = {"type": "json_schema", "json_schema": {"name": "weather", "schema": SCHEMA}}


def run(**checks: Callable[[], object]) -> None:
    """Print for each feature "ok" if its check returns a true value, or the first line of the error."""
    for feature, check in checks.items():
        try:
            value = check()
            problem = "" if value else f"nothing was returned: {value!r}"
        except Exception as error:
            if os.environ.get("TRACE"):
                traceback.print_exc()
            problem = f"{type(error).__name__}: {error}".splitlines()[0][:300]
        print(f"{feature}: {problem or 'ok'}", flush=True)


def text_of(chunks: Iterable[Any]) -> str:
    """Return the text of a streamed chat completion."""
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


def started(command: Callable[[int], Sequence[str]], path: str) -> str:
    """Start a server that stands between the client and Pumice, and return its address once it answers at ``path``.

    Args:
        command: Returns the command for a port.
        path: Path that the server answers when it is ready.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - it lasts as long as the process
    process = subprocess.Popen(command(port), stdout=log, stderr=log)
    atexit.register(process.terminate)
    address = f"http://127.0.0.1:{port}"
    while process.poll() is None:
        try:
            urllib.request.urlopen(address + path).close()
            return address
        except OSError:
            time.sleep(0.5)
    log.seek(0)
    print(log.read()[-2000:], file=sys.stderr)
    raise SystemExit(f"{command(port)[0]} ended with status {process.returncode} before it answered")
