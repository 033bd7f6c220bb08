"""Logs as lines of JSON, and one line for each request: who asked for what, what it cost, and how it ended.

No line has a text of a prompt or an answer.
"""

from __future__ import annotations

import logging
import sys
import time
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

import orjson

access = logging.getLogger("pumice.access")

_request: ContextVar[dict[str, Any] | None] = ContextVar("request", default=None)


def begin(facts: dict[str, Any]) -> None:
    """A request begins in this context; ``facts`` are of its line."""
    _request.set({**facts, "began": time.perf_counter()})


def request_id() -> str:
    """Of the request of this context, if there is one."""
    return str((_request.get() or {}).get("id", ""))


def about(**facts: Any) -> None:
    """Add to what the line of this context's request says."""
    told = _request.get()
    if told is not None:
        told.update(facts)


def note(model: str, timings: Any) -> None:
    """A sequence of the request of this context has ended."""
    facts = _request.get()
    if facts is None:
        return
    facts["model"] = model
    facts["prompt_tokens"] = facts.get("prompt_tokens", 0) + timings.prompt_tokens
    facts["cached_tokens"] = facts.get("cached_tokens", 0) + timings.prompt_cached
    facts["generated_tokens"] = facts.get("generated_tokens", 0) + timings.generated_tokens
    facts["queue_ms"] = round(timings.queue_seconds * 1000, 1)
    facts["first_token_ms"] = round((timings.queue_seconds + timings.prompt_seconds) * 1000, 1)


def end(status: int) -> dict[str, Any]:
    """The request of this context has ended; what its line says."""
    facts = _request.get() or {}
    spent = (time.perf_counter() - facts.pop("began", time.perf_counter())) * 1000
    told = {**facts, "status": status, "ms": round(spent, 1)}
    access.info("%(method)s %(path)s %(status)s in %(ms)s ms", told, extra={"request": told})
    return told


class JsonLines(logging.Formatter):
    """A record as one line of JSON: time, level, message, and what is known of the request."""

    def format(self, record: logging.LogRecord) -> str:
        made = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        told = {"time": made.replace("+00:00", "Z"), "level": record.levelname.lower(), "message": record.getMessage()}
        facts = getattr(record, "request", None) or {"id": (_request.get() or {}).get("id")}
        told |= {name: value for name, value in facts.items() if value is not None}
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(told, default=str).decode()


def log_json() -> None:
    """Write what is logged, requests too, to standard error as JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logger = logging.getLogger("pumice")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.handlers = [handler]
