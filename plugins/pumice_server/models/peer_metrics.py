"""llama-server's metrics, computed from Pumice's and summed over the models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from prometheus_client.metrics_core import Metric

import pumice

_TOTALS = {
    "prompt_tokens_total": "pumice_prompt_read_tokens",
    "prompt_tokens_cached_total": "pumice_prompt_cached_tokens",
    "prompt_seconds_total": "pumice_prompt_seconds",
    "tokens_predicted_total": "pumice_generated_tokens",
    "tokens_predicted_seconds_total": "pumice_generation_seconds",
    "spec_decode_num_drafts_total": "pumice_drafts",
    "spec_decode_num_draft_tokens_total": "pumice_drafted_tokens",
    "spec_decode_num_accepted_tokens_total": "pumice_accepted_tokens",
}
_AT, _OURS_AT = "spec_decode_num_accepted_tokens_per_pos_total", "pumice_accepted_tokens_at"
_GAUGES = {
    "requests_processing": "pumice_engine_sequences_running",
    "requests_deferred": "pumice_engine_sequences_waiting",
}
_RATES = {
    "prompt_tokens_seconds": ("prompt_tokens_total", "prompt_seconds_total", "Prompt"),
    "predicted_tokens_seconds": ("tokens_predicted_total", "tokens_predicted_seconds_total", "Generated"),
}
"""Totals of tokens and of seconds, by the name of the rate."""


class PeerMetrics:
    """llama-server's metrics. Rates are those since the previous scrape."""

    def __init__(self) -> None:
        self._told = dict.fromkeys(_TOTALS, 0.0)
        self._longest = 0

    def note(self, timings: pumice.Timings) -> None:
        """Note a sequence that ended."""
        self._longest = max(self._longest, timings.prompt_tokens + timings.generated_tokens)

    def text(self, metrics: Iterable[Metric], steps_before: int) -> str:
        """Return the metrics in Prometheus' format; ``steps_before`` counts steps of engines that were unloaded."""
        ours = {metric.name: metric for metric in metrics}

        def line(name: str, kind: str, own_name: str) -> str:
            return _lines(name, kind, ours[own_name].documentation, _total(ours[own_name]))

        totals = {name: _total(ours[own_name]) for name, own_name in _TOTALS.items()}
        steps = _total(ours["pumice_engine_steps"]) + steps_before
        lines = [line(name, "counter", own_name) for name, own_name in _TOTALS.items()]
        lines += _positions(ours[_OURS_AT])
        lines.append(_lines("n_decode_total", "counter", "Batches computed", steps))
        lines.append(_lines("n_tokens_max", "counter", "Length of the longest sequence in tokens", self._longest))
        lines += [line(name, "gauge", own_name) for name, own_name in _GAUGES.items()]
        for name, (tokens, seconds, what) in _RATES.items():
            spent = totals[seconds] - self._told[seconds]
            rate = (totals[tokens] - self._told[tokens]) / spent if spent else 0.0
            lines.append(_lines(name, "gauge", f"{what} tokens per second, since the last scrape", rate))
        per_step = totals["tokens_predicted_total"] / steps if steps else 0.0
        lines.append(_lines("n_busy_slots_per_decode", "gauge", "Tokens generated per batch", per_step))
        self._told = totals
        return "".join(lines)


def _total(metric: Metric) -> float:
    """Return the sum of a counter or gauge, without the times when counters were created."""
    return sum(sample.value for sample in metric.samples if not sample.name.endswith("_created"))


def _positions(metric: Metric) -> list[str]:
    """Return the accepted tokens by position in the draft, from 0."""
    accepted_at = Counter[int]()
    for sample in metric.samples:
        if not sample.name.endswith("_created"):
            accepted_at[int(sample.labels["position"])] += int(sample.value)
    name = f"llamacpp:{_AT}"
    rows = [f'{name}{{position="{position}"}} {accepted_at[position]}\n' for position in sorted(accepted_at)]
    return [f"# HELP {name} {metric.documentation}.\n# TYPE {name} counter\n", *rows] if rows else []


def _lines(name: str, kind: str, help: str, value: float) -> str:
    name = f"llamacpp:{name}"
    return f"# HELP {name} {help}.\n# TYPE {name} {kind}\n{name} {value:.10g}\n"
