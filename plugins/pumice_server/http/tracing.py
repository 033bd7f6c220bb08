"""OpenTelemetry, if its API is installed: a span for each request, with the conventions for generative models."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

_ATTRIBUTES = {
    "model": "gen_ai.request.model",
    "prompt_tokens": "gen_ai.usage.input_tokens",
    "generated_tokens": "gen_ai.usage.output_tokens",
    "status": "http.response.status_code",
    "id": "pumice.request_id",
    "first_token_ms": "pumice.first_token_ms",
    "queue_ms": "pumice.queue_ms",
}
"""Facts of a finished request, by the names of the semantic conventions."""


@contextlib.contextmanager
def span(method: str, path: str, headers: Mapping[str, str]) -> Iterator[Any]:
    """Trace a request within the trace of its ``traceparent`` header. Yields None without OpenTelemetry."""
    api = _api()
    if api is None:
        yield None
        return
    trace, propagate = api
    context = propagate.extract(headers)
    tracer = trace.get_tracer("pumice")
    attributes = {"http.request.method": method, "url.path": path}
    kind = trace.SpanKind.SERVER
    with tracer.start_as_current_span(f"{method} {path}", context, kind, attributes) as current:
        yield current


def describe(span: Any, facts: Mapping[str, Any]) -> None:
    """Add the facts of a finished request to its span."""
    if span is not None:
        span.set_attributes({name: facts[key] for key, name in _ATTRIBUTES.items() if facts.get(key) is not None})


@cache
def _api() -> Any:
    try:
        from opentelemetry import propagate, trace
    except ImportError:
        return None
    return trace, propagate
