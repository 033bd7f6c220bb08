"""Log lines in JSON, and one line for each request: key, path, tokens, times, status.

Texts of prompts and answers are never logged.
"""

from __future__ import annotations

import logging
import sys
import time
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

import orjson

import pumice
from pumice.cli.output import echo

logger = logging.getLogger("pumice")
access = logging.getLogger("pumice.access")

_request: ContextVar[dict[str, Any] | None] = ContextVar("request", default=None)


def begin(facts: dict[str, Any]) -> None:
    """Begin the log line of this context's request with some facts."""
    _request.set({**facts, "began": time.perf_counter()})


def request_id() -> str:
    """Return the id of this context's request, or an empty text."""
    return str((_request.get() or {}).get("id", ""))


def about(**facts: Any) -> None:
    """Add facts to the log line of this context's request."""
    line = _request.get()
    if line is not None:
        line.update(facts)


def note(timings: pumice.Timings) -> None:
    """Add the counts and times of a finished sequence to the log line of this context's request."""
    facts = _request.get()
    if facts is None:
        return
    facts["prompt_tokens"] = facts.get("prompt_tokens", 0) + timings.prompt_tokens
    facts["cached_tokens"] = facts.get("cached_tokens", 0) + timings.prompt_cached
    facts["generated_tokens"] = facts.get("generated_tokens", 0) + timings.generated_tokens
    facts["queue_ms"] = round(timings.queue_seconds * 1000, 1)
    facts["first_token_ms"] = round((timings.queue_seconds + timings.prompt_seconds) * 1000, 1)


def n_tokens() -> int:
    """Return the tokens of prompt and answers of this context's request, so far."""
    facts = _request.get() or {}
    return int(facts.get("prompt_tokens", 0) + facts.get("generated_tokens", 0))


def failed(error: Exception) -> None:
    """Log an error of this context's request, of which its client is told little; debug levels add the traceback."""
    facts = _request.get() or {}
    traceback = error if logger.isEnabledFor(logging.DEBUG) else None
    model = f" (model {facts['model']})" if "model" in facts else ""
    values = facts.get("method"), facts.get("path"), model, type(error).__name__, error
    logger.error("%s %s%s: %s: %s", *values, exc_info=traceback)


def end(status: int) -> dict[str, Any]:
    """Write the log line of this context's request, and return its facts."""
    facts = _request.get() or {}
    spent = (time.perf_counter() - facts.pop("began", time.perf_counter())) * 1000
    line = {**facts, "status": status, "ms": round(spent, 1)}
    access.info("%(method)s %(path)s %(status)s in %(ms)s ms", line, extra={"request": line})
    return line


class JsonLines(logging.Formatter):
    """Formats a record as one line of JSON: time, level, message, and facts of the request."""

    def format(self, record: logging.LogRecord) -> str:
        made = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {"time": made.replace("+00:00", "Z"), "level": record.levelname.lower(), "message": record.getMessage()}
        facts = getattr(record, "request", None) or {"id": (_request.get() or {}).get("id")}
        line |= {name: value for name, value in facts.items() if value is not None}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()


def announce(text: str) -> None:
    """Tell the operator that the server does something: as JSON after ``log_json``, otherwise as a line of text."""
    if any(isinstance(handler.formatter, JsonLines) for handler in logger.handlers):
        logger.info("%s", text)
    else:
        echo(text, err=True)


def log_json() -> None:
    """Write the log, including requests, to standard error as JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logger = logging.getLogger("pumice")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.handlers = [handler]
