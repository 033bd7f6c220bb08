"""Prometheus metrics: tokens and times of finished requests, and the state of the engines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

import pumice
from pumice_server.models.peer_metrics import PeerMetrics
from pumice_server.pools import Pool

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_TOKEN_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
_TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144)

ENGINE_GAUGES = {
    "sequences_waiting": "Sequences waiting for a slot",
    "sequences_running": "Running sequences",
    "slots": "Maximum number of running sequences",
    "slots_free": "Free slots for sequences",
    "cache_blocks": "KV-cache blocks",
    "cache_blocks_free": "Free KV-cache blocks",
    "cache_waits": "Requests that have waited for KV-cache blocks since the model was loaded",
    "steps": "Batches computed since the model was loaded",
}
"""State of an engine: names of gauges, and their help."""

TIER_GAUGES = {
    "limit_bytes": "Maximum size in bytes",
    "n_bytes": "Bytes held",
    "n_entries": "Blocks and recurrent states held",
}
"""Fields of a tier's ``Tally``, and the help of their gauges. Tiers keep what leaves the KV cache."""

TIER_COUNTERS = {
    "n_saved": "Blocks and recurrent states saved",
    "n_loaded": "Blocks and recurrent states loaded",
    "n_evicted": "Blocks and recurrent states evicted",
    "n_refused": "Blocks and recurrent states that were damaged, or could not be written",
}
"""Fields of a ``Tally`` that count from the start of an engine, and the help of their counters."""


def engine_gauges(snapshot: pumice.Snapshot) -> dict[str, int]:
    """Return the values of the gauges from a ``Snapshot``."""
    return {
        "sequences_waiting": snapshot.n_waiting,
        "sequences_running": snapshot.n_running + snapshot.n_reading,
        "slots": snapshot.n_slots,
        "slots_free": snapshot.n_slots_free,
        "cache_blocks": sum(snapshot.n_blocks.values()),
        "cache_blocks_free": sum(snapshot.n_blocks_free.values()),
        "cache_waits": snapshot.n_lacked,
        "steps": snapshot.n_steps,
    }


def _of_tier(field: str, text: str) -> tuple[str, str, list[str]]:
    """Return the name, help and labels of the metric of a ``Tally``'s field."""
    return f"cache_tier_{field.removeprefix('n_')}", f"Cache tier: {text}", ["model", "tier"]


class _PoolMetrics(Collector):
    """The state of the pools, which all servers of a process share."""

    def collect(self) -> Iterator[Metric]:
        held = GaugeMetricFamily("pumice_pool_held", "Places or bytes of a pool in use", labels=["pool"])
        waiting = GaugeMetricFamily("pumice_pool_waiting", "Calls that wait for a place of a pool", labels=["pool"])
        refused = CounterMetricFamily("pumice_pool_refused", "Requests that a pool refused", labels=["pool"])
        for pool in Pool.all:
            held.add_metric([pool.name], pool.n_held)
            waiting.add_metric([pool.name], pool.n_waiting)
            refused.add_metric([pool.name], pool.n_refused)
        yield from (held, waiting, refused)


class Metrics:
    """Metrics of one server, in a registry of its own. Most have a label with the model's name."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._counted: list[Counter | Histogram] = []  # labelled by model alone
        self._of_models: list[Counter | Gauge | Histogram] = []
        self._requests = self._counter("requests", "HTTP requests by endpoint and status", ["endpoint", "status"])
        self._crashes = self._counter("engine_crashes", "Engine crashes and failed loads")
        self._prompt = self._counter("prompt_tokens", "Prompt tokens")
        self._cached = self._counter("prompt_cached_tokens", "Prompt tokens found in the KV cache")
        self._read = self._counter("prompt_read_tokens", "Prompt tokens computed")
        self._generated = self._counter("generated_tokens", "Generated tokens")
        self._drafts = self._counter("drafts", "Drafts that were verified")
        self._drafted = self._counter("drafted_tokens", "Drafted tokens that were verified")
        self._accepted = self._counter("accepted_tokens", "Drafted tokens that were accepted")
        self._accepted_at = self._counter(
            "accepted_tokens_at", "Drafted tokens that were accepted, by position in the draft", ["model", "position"]
        )
        self._prompt_seconds = self._counter("prompt_seconds", "Prompt processing time in seconds")
        self._generation_seconds = self._counter("generation_seconds", "Generation time in seconds")
        self._queue = self._histogram("queue_seconds", "Time in the queue in seconds", _SECONDS)
        self._first = self._histogram(
            "time_to_first_token_seconds", "Time to the first token in seconds, including the queue", _SECONDS
        )
        self._each = self._histogram(
            "time_per_token_seconds", "Mean time per token after the first, in seconds", _TOKEN_SECONDS
        )
        self._whole = self._histogram("sequence_seconds", "Time from arrival to the last token in seconds", _SECONDS)
        self._prompt_length = self._histogram("sequence_prompt_tokens", "Prompt tokens per sequence", _TOKENS)
        self._length = self._histogram("sequence_generated_tokens", "Generated tokens per sequence", _TOKENS)
        self._engine = {name: self._gauge(f"engine_{name}", text) for name, text in ENGINE_GAUGES.items()}
        self._tiers = {field: self._gauge(*_of_tier(field, text)) for field, text in TIER_GAUGES.items()}
        self._tier_counts = {field: self._counter(*_of_tier(field, text)) for field, text in TIER_COUNTERS.items()}
        self._tallied: dict[str, dict[tuple[str, str], int]] = {}  # by model, and by tier and field
        self._registry.register(_PoolMetrics())
        self._peer = PeerMetrics()
        self._steps: dict[str, int] = {}
        self._steps_before: dict[str, int] = {}  # of engines that were unloaded
        self._loaded = self._gauge("model_loaded", "1 if the model is loaded, 0 otherwise")
        self._memory = self._gauge("memory_bytes", "Memory of the model in bytes, by purpose", ["model", "purpose"])

    def request(self, endpoint: str, status: int) -> None:
        """Count a response. Names of endpoints come from the code, so that clients cannot add labels."""
        self._requests.labels(endpoint, status).inc()

    def crash(self, model: str) -> None:
        self._crashes.labels(model).inc()

    def count(self, model: str, timings: pumice.Timings) -> None:
        """Count the tokens and times of a sequence that ended or whose client disconnected."""
        self._prompt.labels(model).inc(timings.prompt_tokens)
        self._cached.labels(model).inc(timings.prompt_cached)
        self._read.labels(model).inc(timings.prompt_tokens - timings.prompt_cached)
        self._generated.labels(model).inc(timings.generated_tokens)
        self._drafts.labels(model).inc(timings.n_drafts)
        self._drafted.labels(model).inc(timings.n_drafted)
        self._accepted.labels(model).inc(timings.n_accepted)
        for position, n in enumerate(timings.accepted_at):
            self._accepted_at.labels(model, position).inc(n)
        self._prompt_seconds.labels(model).inc(timings.prompt_seconds)
        self._generation_seconds.labels(model).inc(timings.generation_seconds)
        self._peer.note(timings)
        if timings.generated_tokens:
            first = timings.queue_seconds + timings.prompt_seconds
            self._queue.labels(model).observe(timings.queue_seconds)
            self._first.labels(model).observe(first)
            self._whole.labels(model).observe(first + timings.generation_seconds)
            self._prompt_length.labels(model).observe(timings.prompt_tokens)
            self._length.labels(model).observe(timings.generated_tokens)
        if timings.generated_tokens > 1:
            self._each.labels(model).observe(timings.generation_seconds / (timings.generated_tokens - 1))

    def count_encoded(self, model: str, n_tokens: int, seconds: float) -> None:
        """Count the tokens of texts that were embedded or ranked, and the time that this took."""
        self._prompt.labels(model).inc(n_tokens)
        self._read.labels(model).inc(n_tokens)
        self._prompt_seconds.labels(model).inc(seconds)

    def engine(self, model: str, snapshot: pumice.Snapshot, memory: Mapping[str, int]) -> None:
        """Set the gauges of a model from its engine's ``Snapshot`` and its memory; create its counters at zero."""
        for metric in self._counted:
            metric.labels(model)
        self._loaded.labels(model).set(1)
        if snapshot.n_steps < self._steps.get(model, 0):  # the engine was restarted
            self._end_engine(model)
        self._steps[model] = snapshot.n_steps
        for name, value in engine_gauges(snapshot).items():
            self._engine[name].labels(model).set(value)
        for tier, tally in snapshot.tiers.items():
            for field, gauge in self._tiers.items():
                gauge.labels(model, tier).set(getattr(tally, field))
            for field, counter in self._tier_counts.items():
                counter.labels(model, tier).inc(self._increase(model, tier, field, getattr(tally, field)))
        for purpose, size in memory.items():
            self._memory.labels(model, purpose).set(size)

    def no_engine(self, model: str) -> None:
        """Set the gauges of a model that is not loaded."""
        self._loaded.labels(model).set(0)
        self._end_engine(model)
        for gauge in self._engine.values():
            gauge.remove_by_labels({"model": model})
        for gauge in (self._memory, *self._tiers.values()):
            gauge.remove_by_labels({"model": model})

    def forget(self, model: str) -> None:
        """Remove the metrics of a model that is not served any more."""
        self._end_engine(model)
        self._steps_before[""] = self._steps_before.get("", 0) + self._steps_before.pop(model, 0)
        for metric in self._of_models:
            metric.remove_by_labels({"model": model})

    def _end_engine(self, model: str) -> None:
        self._steps_before[model] = self._steps_before.get(model, 0) + self._steps.pop(model, 0)
        self._tallied.pop(model, None)

    def _increase(self, model: str, tier: str, field: str, count: int) -> int:
        """Return by how much a count of an engine has grown since the last time."""
        tallied = self._tallied.setdefault(model, {})
        before, tallied[tier, field] = tallied.get((tier, field), 0), count
        return count - before if count >= before else count  # less: the engine was restarted

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def llamacpp(self) -> str:
        """Return the metrics that llama-server has too, under its names."""
        return self._peer.text(self._registry.collect(), sum(self._steps_before.values()))

    def _counter(self, name: str, description: str, labels: tuple[str, ...] | list[str] = ("model",)) -> Counter:
        counter = Counter(f"pumice_{name}", description, labels, registry=self._registry)
        if labels == ("model",):
            self._counted.append(counter)
        if "model" in labels:
            self._of_models.append(counter)
        return counter

    def _gauge(self, name: str, description: str, labels: tuple[str, ...] | list[str] = ("model",)) -> Gauge:
        gauge = Gauge(f"pumice_{name}", description, labels, registry=self._registry)
        self._of_models.append(gauge)
        return gauge

    def _histogram(self, name: str, description: str, buckets: tuple[float, ...]) -> Histogram:
        histogram = Histogram(f"pumice_{name}", description, ["model"], buckets=buckets, registry=self._registry)
        self._counted.append(histogram)
        self._of_models.append(histogram)
        return histogram
