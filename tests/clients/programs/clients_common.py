"""Parts of the programs: the address of the server, a chat, a tool, and a line of report for each feature."""

import os
import traceback
from collections.abc import Callable
from typing import Any

URL = os.environ["PUMICE_URL"]
MODEL = os.environ["PUMICE_MODEL"]
MESSAGES: Any = [{"role": "user", "content": "Once upon a time"}]
TOOL: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Tell the weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
_CHECKS: list[Callable[[], object]] = []


def check(function: Callable[[], object]) -> Callable[[], object]:
    """Register a feature: it works if the function returns a true value."""
    _CHECKS.append(function)
    return function


def run() -> None:
    """Run every check, and print "feature: ok", or the first line of its error."""
    for function in _CHECKS:
        try:
            value = function()
            problem = "" if value else f"nothing was returned: {value!r}"
        except Exception as error:
            if os.environ.get("TRACE"):
                traceback.print_exc()
            problem = f"{type(error).__name__}: {error}".splitlines()[0][:300]
        print(f"{function.__name__}: {problem or 'ok'}", flush=True)
