"""Metrics for Prometheus: tokens and seconds of requests that ended, and what the engine has in hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_TOKEN_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)


class Metrics:
    """Those of one server; each has a registry of its own."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        by = ["endpoint", "status"]
        self._requests = Counter("pumice_requests", "Requests, by endpoint and status", by, registry=registry)
        self._prompt = Counter("pumice_prompt_tokens", "Tokens of prompts", registry=registry)
        self._cached = Counter("pumice_prompt_cached_tokens", "Those found in the cache", registry=registry)
        self._generated = Counter("pumice_generated_tokens", "Tokens generated", registry=registry)
        self._prompt_seconds = Counter("pumice_prompt_seconds", "Seconds of reading prompts", registry=registry)
        self._generation_seconds = Counter("pumice_generation_seconds", "Seconds of generating", registry=registry)
        self._queue = self._histogram("pumice_queue_seconds", "Seconds in the queue", _SECONDS)
        self._first = self._histogram("pumice_time_to_first_token_seconds", "Seconds to the first token", _SECONDS)
        self._each = self._histogram("pumice_time_per_token_seconds", "Mean seconds of a later token", _TOKEN_SECONDS)
        self._engine = Gauge("pumice_engine", "What the engine has in hand", ["what"], registry=registry)
        self._memory = Gauge("pumice_memory_bytes", "Bytes held, by purpose", ["purpose"], registry=registry)

    def request(self, endpoint: str, status: int) -> None:
        """Count an answer. ``endpoint``: a name that clients cannot make up."""
        self._requests.labels(endpoint, status).inc()

    def count(self, timings: Any) -> None:
        """A sequence that ended; those cancelled before their first token have no timings."""
        self._prompt.inc(timings.prompt_tokens)
        self._cached.inc(timings.prompt_cached)
        self._generated.inc(timings.generated_tokens)
        self._prompt_seconds.inc(timings.prompt_seconds)
        self._generation_seconds.inc(timings.generation_seconds)
        if timings.generated_tokens:
            self._queue.observe(timings.queue_seconds)
            self._first.observe(timings.queue_seconds + timings.prompt_seconds)
        if timings.generated_tokens > 1:
            self._each.observe(timings.generation_seconds / (timings.generated_tokens - 1))

    def text(self, snapshot: Any, memory: Mapping[str, int]) -> bytes:
        """All of them, with a ``Snapshot`` of the engine and ``Model.memory``."""
        in_hand = {
            "sequences_waiting": snapshot.n_waiting,
            "sequences_running": snapshot.n_running,
            "slots": snapshot.n_slots,
            "slots_free": snapshot.n_slots_free,
            "cache_blocks": sum(snapshot.n_blocks.values()),
            "cache_blocks_free": sum(snapshot.n_blocks_free.values()),
            "steps": snapshot.n_steps,
        }
        for what, value in in_hand.items():
            self._engine.labels(what).set(value)
        for purpose, size in memory.items():
            self._memory.labels(purpose).set(size)
        return generate_latest(self._registry)

    def _histogram(self, name: str, description: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(name, description, buckets=buckets, registry=self._registry)
